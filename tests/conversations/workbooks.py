"""Workbooks as other programs write them: made by hand, so that a test says what is in the XML."""

from __future__ import annotations

import base64
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
DAY, MOMENT, TIME, DURATION = 1, 2, 3, 4  # the styles of `_STYLES`
_STYLES = f"""<styleSheet xmlns="{_MAIN}"><cellXfs count="5"><xf numFmtId="0"/>
<xf numFmtId="14"/><xf numFmtId="22"/><xf numFmtId="21"/><xf numFmtId="46"/></cellXfs></styleSheet>"""


@dataclass(frozen=True)
class Cell:
    """A cell as it stands in the XML: `Cell(formula="SUM(A1:A2)")` has no stored value."""

    value: Any = None
    formula: str = ""
    style: int = 0
    type: str = ""


@dataclass
class Sheet:
    name: str
    rows: dict[int, Sequence[Any]]
    merged: Sequence[str] = ()
    state: str = "visible"
    extra: str = field(default="", repr=False)  # between <sheetData> and its first row


def xlsx(*sheets: Sheet, more: dict[str, Any] | None = None) -> bytes:
    """Return a workbook; a sheet's rows are `{1: ["id", "amount"], 3: [1, Cell(2.5)]}`."""
    ids = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f"""<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>""",
        "_rels/.rels": _relations([(1, "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{"".join(map(_entry, ids, sheets))}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _relations(
            [
                *((n, "worksheet", f"worksheets/sheet{n}.xml") for n in ids),
                (99, "styles", "styles.xml"),
            ]
        ),
        "xl/styles.xml": _STYLES,
        **{f"xl/worksheets/sheet{n}.xml": _sheet(s) for n, s in zip(ids, sheets, strict=True)},
        **(more or {}),
    }
    return zipped(parts)


def zipped(parts: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def _relations(targets: Sequence[tuple[int, str, str]]) -> str:
    each = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for n, kind, target in targets
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{each}</Relationships>'


def _entry(number: int, sheet: Sheet) -> str:
    return f'<sheet name={quoteattr(sheet.name)} sheetId="{number}" state="{sheet.state}" r:id="rId{number}"/>'


def _sheet(sheet: Sheet) -> str:
    rows = "".join(
        f'<row r="{number}">{"".join(_cell(_letters(c) + str(number), v) for c, v in enumerate(row))}</row>'
        for number, row in sheet.rows.items()
    )
    merged = "".join(f'<mergeCell ref="{area}"/>' for area in sheet.merged)
    return (
        f'<worksheet xmlns="{_MAIN}"><sheetData>{sheet.extra}{rows}</sheetData>'
        f"{f'<mergeCells>{merged}</mergeCells>' if merged else ''}</worksheet>"
    )


def _letters(column: int) -> str:
    return (_letters(column // 26 - 1) if column >= 26 else "") + chr(65 + column % 26)


def _cell(place: str, given: Any) -> str:
    if given is None:
        return ""
    cell = given if isinstance(given, Cell) else Cell(given)
    kind = cell.type or ("str" if isinstance(cell.value, str) else "n")
    formula = f"<f>{escape(cell.formula)}</f>" if cell.formula else ""
    value = "" if cell.value is None else f"<v>{escape(str(cell.value))}</v>"
    return f'<c r="{place}" s="{cell.style}" t="{kind}">{formula}{value}</c>'


def _packed(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


# Saved by xlwt: zip, amount, day over "00501", 12.5 and 30 November 2026, on a sheet "Alt".
XLS = _packed(
    "c-rk)O=uHA6#izj+x)amHf<`jLJ5UdTU$sG!ArZXRC`LPz4(JrQ<Fn!O-"
    "hJ|_F}c>B!b{c@lvP<FI6x8pn~2!2o)6sK}huINl@_6W_|OrThgk~h!!gIE%WBhn|V8LXXd@xnO7^}!s5M_A~vBP"
    "9+Yf9YAR%clHV<upnBVuteg8N*$O)fejiO_je*DYFTHXO<$M>R;jaFiDDaWeDa>FblTJmq5r^1@gpfA$5f!*ek|3"
    "Jdss^TKm^L!K!!4gM9bm~7rhU}5AWmY%8tFRdtm5NZ8`lLP-}``d-m|0^O?V+!@%gKw+}6Ngb}})&!zx<!IxK-Eb"
    "U2kxWo0>pTL=Ir2tDz5&(Kf-"
    "5t{5Je6yp#SJ$hbMU{Me<pL!CzESS|joe3*xLJNp(}8)|r`bvJs70+VYdjd7&aI*yvZS*BbCWaV--"
    ")xCbLkuvlZjaah{X=XdIK`Fb0{!3go1i@kvgJDgqRPrqnKpN>g_MD;}fISI7{X^{FgV0c4-"
    "rAT#y>19ON1eWxIeb=JzqZ$Zy@vd<)YEtzybMMw=Yw$O5;y#I+sN&wj=mYflBgm-zhWqYqp2pR7*emxqgUk>z*RB"
    "HC!vN|L^O7SJua#f|F{k1RJAPC)s<wE3st;?qpWcH7wrLs*mUL<lo2m*nV(^^)d{mDCo$&=#yM$KxsWFIf9>qYQ3"
    "iZ#B~F*BWr22W_BY6AnN@K|w)5K|w)5;g2DlA9Ig$N-&%sf3I_|vqq_;u1Wq|j3Gl$jt-"
    "TFk)}M0*{ashE*Qdnm)N3?dtWGVjC#*v3KML{RMqR34sN3Id$z1-{yi6}w*OK!cK+l3e*kdK&z%"
)

# An .xlsx encrypted by msoffcrypto, its random bytes blanked out.
PROTECTED = _packed(
    "c-rk(ZEO=|9Dg=8U_<3az-"
    "=;Y&KN$x*0;4?u^sev?bhz4E$zCv!1a1<uWRqFch|LrfMSAvF)?ENMq(CqA$%~Is6k9rLV|qo^@|#mh>MuT5Mu<5"
    "AC&pO_Bz@za2=RHykGO{(|ewKp5OET|9|(~_QmJxFHKIj{eTvr2dzNY=bF&UioQBvefeTt>00FVxw*M=_neIT3V#"
    "E|`mKQ4HAuA-YrYD&TDoqAb`9_W;Df-"
    "2fNM(@K<j}Ur2Ayte<(k{E2MV0^?w++5x5Ds8TbgW1=tE~13n7e0&E9v1wJNw=AM8LG4K(P0yz*3Er$xI7Hme1^J"
    "jkZE$&gZ9&%oN=3-sBZA6l}0HP{URAoV(L{T(^aOfF_?>Jol8!&hyRmQUv{U+#}-B21^iR_>x0R6B7QJF-"
    "14e__Y8?db1u*CQ)$AX~8fg%M}pi%8uhwAHUjbH5ZNMkog?}e6KvVI%ri)Tlp^zL7ZzW6r;drN&c<RJ#xSQ@sVx?"
    "=pRinXjg|Nf%q#oWgic(GKGoA+0Zu4Uw3^vP~%EC6~q=<vmuIh3wF{(1kc{tx26d4CJzubYp*X&L$};d$pkD-"
    "9~Oo;|4e?x{WhqF2wO#m=8n%(YZtE9lote+Soc{!BKadjck)7vd(0F5rPN$U`Tx6*D0^pMq9AqdFHoDa-"
    "!@)GbqgwKO+Tv4&y^?*+|Wcy=rGHOqV!Mx^=Td3pdj;bTM=q=i-m-yKMY^str_es#ewb+OM1JF~-"
    "xIBJ1@HDp^2Jt|~?eTerRL<2R{WvP3;RjnHCz&{P}5zjKyu6#PBm>@ZxVrVm_?o?q4k|vlaMaRw9o`AEX8&mKCPD"
    "k++Lz8B#K=RnGo@Nu=#1&WpW+`9=nm1z!L11?(l{}Fk(>ULmrU;JVnV8T?Fli+di%|rr)TmT?<&CLWY3@$8hS}p}"
    "!BJX(;gl@S^Erl#mKP$HyAVNg0tI8ZKw>@33V;d5?YMv|cswQesr?YUT8}9rDTWxoaS1nBDFLF_=-"
    "?`W^NG@!z6&d^G7o}c6C`Iz#Tkwg5@|DLariN**OtI3x|s0tFE0}%ZB|=p#fnLOmqn-"
    "6V8uNJ@l+O+g5g}!<`N?D>_o4}pmC1p4PE-U*^DWaQXo-"
    "?!c7Zg92O}kr0kPXR~je!$$}Y+Xw#HhmDv*>38!_L3~mp*yHjd9<{S68UA^9D#@=roitg$4gcHNQoG!19vqqXCtX"
    "5$#ZZT-"
    "I+Fo|VYFD~Of*L=uJvB@?;<S(xcTlAz?Ke!sG<+ZK)(nRO{SzSv>C&Y9agPhnIyGcG<c}x=9;+~%%zO0~J*n1kuC"
    "$(uF@a1_IqX#q=`BeTA5ZqW?R+Yn?Hx2a27C@GR~c_*Vfmi<GF0^|vK)2Crt7IHv5DO|A1~xp!Lt-"
    "?W3sdWPEm=#YOqqZc^06`W_Q<Fx7Dq1ozhG82mDFfU_oW)oWbF^vO8ysSJga7a_~fvoC}29G@FGyc-"
    "R0J(xwSRU*4{_hPw2WE+$xD)@@}MT~XSH(KrxRTKoOM{6sQ7qRwmC5gSftj2^c^uq2G#POaV-"
    "O$&V!ebF%E2@!sy&*`<rLOP*~b_r@jE-"
    ";D@S(4oomQZBS&!&<Fy)RkqU8tobmS%C!fNjK35C(8uzkMh^XdB80oY_(L{;)ricUU5hiIIU!pO94Duw&60RR)r5"
    "s$AexQ^mp9(~M-ukRd~c3>h+H$dDmJh71`pWc;6zz<#-"
    "Ks)?OCcH~2)^UBem`gfd*<TgyUTTirK^1g8P_yOzi?r*85uesTG(qm3n{~yk=f~KDRKAHGv%W&cR%<tOsM?z!9vD"
    "coP-u_hDe8lwZ34G?L@Ob-"
    "`&a)e@o!QrJ`Pu1usrQpkYhvcD(bg}WwA0}qeMLRgc6#r&4?gW^`SI{<;M{jlCSP_nN0YB(Z-"
    "zEaef&mf8~*j)lWi~7&3!X<ymi)oI`bDdI~_i}<J8+Te@<UDO}=aK{nmW$)e9%zkF8;jwOzh+a9?ak=J~bxug+ZV"
    "dSde8A@o_xnP1KC4Vvh2jjkg%C0BZJ`~#X*cg+"
)
