"""What a request costs where nothing is done.

No log-in and no store; parser, renderer and negotiation are Django REST framework's own.
"""

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class EmptyView(APIView):
    """Answers `{}`; a PUT has its body read and parsed first."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    parser_classes = (JSONParser,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = DefaultContentNegotiation

    def get(self, request: Request) -> Response:
        """Answer nothing."""
        return Response({})

    def put(self, request: Request) -> Response:
        """Read the body and answer nothing."""
        assert request.data
        return Response({})
