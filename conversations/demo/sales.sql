-- A small company's sales, the same on every run: what looks random is md5 of a number.
DROP SCHEMA IF EXISTS rethread_demo CASCADE;
CREATE SCHEMA rethread_demo;
SET LOCAL search_path = rethread_demo;

CREATE FUNCTION chance(salt text, n bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE AS
$$ SELECT ('x' || substr(md5(salt || n), 1, 8))::bit(32)::bigint / 4294967296.0 $$;

CREATE TABLE customers (
  id int PRIMARY KEY, name text NOT NULL, segment text NOT NULL, region text NOT NULL);
INSERT INTO customers
SELECT n,
  (ARRAY['Alder', 'Birch', 'Cedar', 'Dogwood', 'Elm', 'Fir', 'Ginkgo', 'Hazel', 'Ivy', 'Juniper'])
    [1 + n % 10] || ' ' ||
  (ARRAY['Foods', 'Tools', 'Textiles', 'Optics', 'Paper', 'Glass', 'Motors', 'Books'])
    [1 + n / 10 % 8] || CASE WHEN n > 80 THEN ' II' ELSE '' END,
  CASE WHEN chance('segment', n) < 0.2 THEN 'Enterprise'
       WHEN chance('segment', n) < 0.55 THEN 'Mid-market' ELSE 'Small' END,
  (ARRAY['North', 'South', 'East', 'West'])[1 + floor(chance('region', n) * 4)::int]
FROM generate_series(1, 120) AS n;

CREATE TABLE products (
  id int PRIMARY KEY, name text NOT NULL, category text NOT NULL,
  price numeric(10,2) NOT NULL, unit_cost numeric(10,2) NOT NULL);
INSERT INTO products VALUES
  (1, 'Desk Oslo', 'Furniture', 640, 402), (2, 'Desk Turin', 'Furniture', 890, 577),
  (3, 'Chair Lund', 'Furniture', 310, 171), (4, 'Shelf Gent', 'Furniture', 220, 139),
  (5, 'Lamp Nara', 'Lighting', 95, 38), (6, 'Lamp Cusco', 'Lighting', 140, 61),
  (7, 'Panel Riga', 'Lighting', 260, 148), (8, 'Monitor arm', 'Accessories', 120, 71),
  (9, 'Cable tray', 'Accessories', 45, 17), (10, 'Footrest', 'Accessories', 60, 29),
  (11, 'Acoustic wall', 'Acoustics', 720, 388), (12, 'Phone booth', 'Acoustics', 4900, 3310);

CREATE TABLE orders (
  id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customers, ordered_on date NOT NULL,
  status text NOT NULL, channel text NOT NULL);
INSERT INTO orders
SELECT n,
  1 + floor(chance('customer', n) ^ 2.2 * 120)::int,
  date '2025-01-02' + floor((1 - (1 - chance('day', n)) ^ 1.15) * 665)::int,
  CASE WHEN chance('status', n) < 0.66 THEN 'shipped' WHEN chance('status', n) < 0.88 THEN 'paid'
       WHEN chance('status', n) < 0.95 THEN 'open' ELSE 'cancelled' END,
  CASE WHEN chance('channel', n) < 0.5 THEN 'web' WHEN chance('channel', n) < 0.8 THEN 'partner'
       ELSE 'phone' END
FROM generate_series(1, 2400) AS n;

CREATE TABLE order_lines (
  order_id int NOT NULL REFERENCES orders, product_id int NOT NULL REFERENCES products,
  quantity int NOT NULL, list_amount numeric(12,2) NOT NULL, discount numeric(12,2) NOT NULL,
  PRIMARY KEY (order_id, product_id));
INSERT INTO order_lines
SELECT order_id, product_id, quantity, quantity * price,
  round(quantity * price * CASE WHEN category = 'Accessories' THEN 0.22
    WHEN chance('discount', order_id * 20 + product_id) < 0.3 THEN 0.1 ELSE 0 END, 2)
FROM (
  SELECT DISTINCT ON (o.id, p.id) o.id AS order_id, p.id AS product_id, p.price, p.category,
    1 + floor(chance('quantity', o.id * 20 + line) ^ 2 * CASE c.segment
      WHEN 'Enterprise' THEN 24 WHEN 'Mid-market' THEN 12 ELSE 5 END
      / CASE p.id WHEN 12 THEN 6 ELSE 1 END)::int AS quantity
  FROM orders o JOIN customers c ON c.id = o.customer_id
  CROSS JOIN generate_series(1, 3) AS line
  JOIN products p ON p.id = 1 + floor(chance('product', o.id * 20 + line) * 12)::int
  WHERE line = 1 OR chance('lines', o.id * 20 + line) < 0.5
  ORDER BY o.id, p.id, line) AS drawn;

CREATE VIEW sales AS
SELECT o.id AS order_id, o.ordered_on, date_trunc('month', o.ordered_on)::date AS month,
  to_char(o.ordered_on, 'YYYY-"Q"Q') AS quarter, o.status, o.channel, c.name AS customer, c.segment,
  c.region, p.name AS product, p.category, l.quantity, l.list_amount,
  l.list_amount - l.discount AS revenue, l.quantity * p.unit_cost AS cost
FROM orders o
JOIN customers c ON c.id = o.customer_id
JOIN order_lines l ON l.order_id = o.id
JOIN products p ON p.id = l.product_id;

-- What the uploaded file holds.
CREATE TABLE budget (region text, quarter text, amount numeric(12,2), PRIMARY KEY (region, quarter));
INSERT INTO budget
SELECT region, '2026-Q' || quarter,
  round((200000 * weight * (0.85 + 0.1 * quarter))::numeric, -3)
FROM (VALUES ('North', 0.95), ('South', 1.2), ('East', 1.3), ('West', 1.0)) AS r(region, weight)
CROSS JOIN generate_series(1, 4) AS quarter;

ANALYZE customers, products, orders, order_lines, budget;
