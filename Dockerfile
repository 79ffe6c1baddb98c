# The web and worker image. It serves by default; a worker runs `python manage.py worker` (its probe
# is `python manage.py worker_alive`), and each deploy runs `python manage.py release` once before.
# compose.yaml shows them together.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY requirements.txt .
RUN pip install --quiet --requirement requirements.txt
WORKDIR /app
COPY . .
# Nothing signed with this key leaves the build.
RUN SECRET_KEY=only-for-collecting-static-files python manage.py collectstatic --noinput

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin rethread
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
USER rethread
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOST=0.0.0.0 \
    PORT=8000
EXPOSE 8000
# A refusal counts as an answer: ALLOWED_HOSTS need not name this host.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=2); c.request('GET', '/health/live'); sys.exit(c.getresponse().status >= 500)"]
CMD ["gunicorn", "-c", "config/gunicorn.py", "config.wsgi"]
