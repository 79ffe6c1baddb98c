"""What a conversation was about, told by lists of words; pure.

    topics_in("¿Cuál fue la nómina de enero?", DEFAULT_TOPICS)      {"nomina"}

Accents and case do not matter, whole words do: `renta` is not in `rentabilidad`. A name with
underscores is the words in it, so that columns and figures count as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

# What people of an ERP's finance ask about. A topic is named in the language of its words.
DEFAULT_TOPICS: Final[Mapping[str, Sequence[str]]] = {
    "ingresos": ("ingreso", "ingresos", "facturación", "facturado"),
    "ventas": ("venta", "ventas", "vendido", "vendidos", "pedidos"),
    "costos": ("costo", "costos", "coste", "costes"),
    "gastos": ("gasto", "gastos", "egreso", "egresos"),
    "nomina": ("nómina", "nóminas", "salario", "salarios", "sueldo", "sueldos"),
    "margen": ("margen", "márgenes", "utilidad", "utilidades", "ganancia", "rentabilidad"),
    "presupuesto": ("presupuesto", "presupuestos", "desviación", "desviaciones"),
    "clientes": ("cliente", "clientes", "cuentas por cobrar", "cobranza", "cartera"),
    "proveedores": ("proveedor", "proveedores", "cuentas por pagar", "compras"),
    "inventario": ("inventario", "inventarios", "existencias", "almacén"),
    "tesoreria": ("tesorería", "flujo de caja", "flujo de efectivo", "liquidez", "bancos"),
    "impuestos": ("impuesto", "impuestos", "iva", "isr", "retenciones"),
    "revenue": ("revenue", "revenues", "income", "turnover", "billing"),
    "sales": ("sale", "sales", "sold", "orders"),
    "costs": ("cost", "costs", "cogs"),
    "expenses": ("expense", "expenses", "spend", "spending", "opex"),
    "payroll": ("payroll", "salary", "salaries", "wages", "headcount"),
    "margin": ("margin", "margins", "profit", "profits", "profitability", "ebitda"),
    "budget": ("budget", "budgets", "variance", "forecast"),
    "customers": ("customer", "customers", "client", "clients", "receivable", "receivables"),
    "suppliers": ("supplier", "suppliers", "vendor", "vendors", "payable", "payables"),
    "inventory": ("inventory", "inventories", "stock", "warehouse"),
    "cash": ("cash", "cash flow", "cashflow", "liquidity", "treasury"),
    "taxes": ("tax", "taxes", "vat"),
}

_WORD = re.compile(r"[^\W_]+")


def topics_in(text: str, keywords: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the topics of which `text` has a word, or some words in a row (`flujo de caja`)."""
    said = _folded(text)
    return {
        topic
        for topic, words in keywords.items()
        if any((folded := _folded_keyword(word)).strip() and folded in said for word in words)
    }


@lru_cache(maxsize=4096)
def _folded_keyword(word: str) -> str:
    return _folded(word)


def _folded(text: str) -> str:
    """Return the words of `text` without case and accents, a space around each."""
    plain = "".join(
        character
        for character in unicodedata.normalize("NFKD", text.casefold())
        if not unicodedata.combining(character)
    )
    return f" {' '.join(_WORD.findall(plain))} "
