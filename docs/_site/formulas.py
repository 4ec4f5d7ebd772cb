"""Formulas as MathML, which browsers show without a script."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>', re.DOTALL)


def on_page_content(text: str, **_: Any) -> str:
    """A page whose formulas are MathML."""
    return FORMULA.sub(_converted, text)


def _converted(match: re.Match[str]) -> str:
    formula = html.unescape(match[2]).strip()
    if match[1] == 'span':
        return convert(formula)
    return f'<div class="formula">{convert(formula, display="block")}</div>'
