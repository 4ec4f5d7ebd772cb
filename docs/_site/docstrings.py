"""Docstrings as Markdown: what they have of reStructuredText, as PyG's do, is written out for the site."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

FORMULA = re.compile(r'^([ ]*)\.\. math::\n((?:\1[ ]+\S.*\n|[ ]*\n)+)', re.MULTILINE)
ROLE = re.compile(r':(?:class|func|meth|obj):`~?([^`]+)`')
SHORT = re.compile(r':(?:class|func|meth):`~(?:[\w]+\.)+(\w+)`')
INLINE = re.compile(r':math:`([^`]+)`')
LINK = re.compile(r'`([^`<]+?)\s*<(https?://[^>]+)>`_')
# the names of several arguments, on more than one line
NAMES = re.compile(r'^([ ]+\w+(?:, \w+)*),\n[ ]+(?=\w+(?:, \w+)*: )', re.MULTILINE)
EXAMPLE = re.compile(r'^([ ]*)Example:$', re.MULTILINE)


def as_markdown(text: str) -> str:
    """A docstring whose formulas, roles and links are Markdown's."""
    text = FORMULA.sub(_formula, text + '\n')
    text = INLINE.sub(r'\\(\1\\)', text)
    text = ROLE.sub(r'`\1`', SHORT.sub(r'`\1`', text))
    text = NAMES.sub(r'\1, ', LINK.sub(r'[\1](\2)', text))
    # a section of examples, whose prompts are code, rather than a paragraph with a title
    return EXAMPLE.sub(r'\1Examples:', text).rstrip('\n')


def _formula(match: re.Match[str]) -> str:
    indent, body = match.groups()
    return textwrap.indent(f'\\[\n{textwrap.dedent(body).strip()}\n\\]', indent) + '\n\n'


class Docstrings(griffe.Extension):
    """Puts `as_markdown` before Griffe's own reading of docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
