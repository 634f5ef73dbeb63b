"""LaTeX text of declarations: escaping for LaTeX, reading aloud for Markdown and CSV.

Labels, column heads, captions and notes of declarations are LaTeX text, as the paper prints them. Text from
elsewhere (device names, error messages) goes through `quote` first and so becomes LaTeX text too.
"""

import re

from pne.errors import UserError
from pne.spec import ResolvedTrack

# What \ref prints for labels of the paper that its tables refer to.
REFERENCES = {"sup-loss": "1"}
# LaTeX commands and the characters that they print: in mathematics, in text, and in text that is quoted.
_MATHEMATICS = {"surd": "✓", "pm": "±", "times": "×", "cdot": "·", "leq": "≤", "geq": "≥", "tau": "τ", "alpha": "α"}
_MATHEMATICS |= {"to": "→", "uparrow": "↑", "downarrow": "↓"}
_TEXT = {"dag": "†", "dots": "…"}
_QUOTED = {"textbackslash": "\\", "textasciicircum": "^", "textasciitilde": "~"}
_QUOTED |= {"textless": "<", "textgreater": ">", "textbar": "|"}
_READ = _MATHEMATICS | _TEXT | _QUOTED
_TYPED = {"--": "–", "---": "—", "``": "“", "''": "”"}
_SYMBOLS = {character: rf"$\{name}$" for name, character in _MATHEMATICS.items()}
_SYMBOLS |= {character: rf"\{name}{{}}" for name, character in _TEXT.items()}
_SYMBOLS |= {"−": "$-$", "‘": "`", "’": "'"} | {character: typed for typed, character in _TYPED.items()}
_KNOWN = {*_READ, "cite", "ref", "textbf", "textit", "emph", "texttt", "mathrm", "text"}
_LATIN = "éèüöäß"
_SPECIAL = {character: rf"\{name}{{}}" for name, character in _QUOTED.items()}
_SPECIAL |= {character: rf"\{character}" for character in "{}$&#_%"} | {'"': "''"}
# Pairs of characters that LaTeX joins to another one.
_LIGATURES = {("-", "-"), ("`", "`"), ("'", "'"), ("'", '"'), ('"', "'"), ("?", "`"), ("!", "`")}
_TOKEN = re.compile(
    r"\\cite\{[^}]*\}"
    r"|\s?\\ref\{(?P<label>[^}]*)\}"
    r"|\\(?:textbf|textit|emph|texttt|mathrm|text)\{(?P<styled>[^}]*)\}"
    r"|\\(?P<command>[A-Za-z]+)(?:\{\}|\s)?"
    r"|\\(?P<escaped>[^A-Za-z])"
    r"|``|''|---?|\$|\{\}"
)
# Mathematics, and keys of citations and references, keep their characters.
_KEPT = re.compile(r"((?<!\\)\$(?:\\.|[^\\$])*\$|\\(?:cite|ref|label)\{[^}]*\})")


def quote(text: str) -> str:
    """Turn any text into LaTeX text that prints it literally; characters that pdflatex lacks become '?'."""
    parts = []
    for before, c in zip(f" {text}", text, strict=False):
        if (before, c) in _LIGATURES:
            parts.append("{}")
        parts.append(_SPECIAL.get(c) or _SYMBOLS.get(c) or (c if c.isascii() or c in _LATIN else "?"))
    return "".join(parts)


def check_latex(text: str, where: str) -> None:
    r"""Refuse LaTeX text of a declaration that would print wrongly, not at all, or run in a spreadsheet.

    Raises
    ------
    UserError
        Beginning with ``where``: what is wrong, and what to write.
    """
    bare = re.sub(r"\\[^A-Za-z]", "", text)
    outside, braces = re.sub(r"\$[^$]*\$", "", bare), re.sub(r"[^{}]", "", bare)
    while "{}" in braces:
        braces = braces.replace("{}", "")
    unknown = [name for name in re.findall(r"\\([A-Za-z]+)", outside) if name not in _KNOWN]
    foreign = [c for c in outside if not (c.isascii() or c in _SYMBOLS or c in _LATIN)]
    wrong = {
        "begins with what LaTeX or a spreadsheet reads as its own; begin with a word": re.match(r"[*\[=@]", text),
        r"has a $ without its partner; write \$ for the character": "$" in outside,
        r"has a brace without its partner; write \{ or \} for the character": braces,
        "has ^ outside of mathematics; write such as $x^2$": "^" in outside,
        rf"has the unknown command {unknown}; write \textbackslash{{}} for the character": unknown,
        f"has {foreign}, which LaTeX lacks; write it in mathematics, such as $_2$, or in Latin letters": foreign,
    }
    if problem := next((problem for problem, found in wrong.items() if found), None):
        raise UserError(f"{where}: {text!r} {problem}")


def check_texts(track: ResolvedTrack) -> None:
    """Refuse a track whose tables have labels, heads or captions that LaTeX cannot print; see `check_latex`."""
    for key, table in track.tables.items():
        declared = table.declaration
        texts = {
            "caption": declared.caption or "",
            **{f"groups.{name}": head for name, head in declared.groups.items()},
        }
        texts |= {f"columns.{name}.title": column.title for name, column in declared.columns.items()}
        texts |= {f"rows.{name}.label": row.label for name, row in declared.rows.items()}
        for place, text in texts.items():
            check_latex(text, f"experiments/tables/{key}.yaml: {place}")


def to_latex(text: str) -> str:
    r"""Make LaTeX text safe to print: escape ``% & # _`` where the author left them bare, and typographic characters.

    Mathematics (between dollars) and the keys of ``\cite`` and ``\ref`` stay as they are.

    >>> to_latex("50% of a_b, $x_1$ and $\\alpha$ as in \\cite{a_b2017}")
    '50\\% of a\\_b, $x_1$ and $\\alpha$ as in \\cite{a_b2017}'
    """
    pieces = _KEPT.split(text)
    escaped = (re.sub(r"(?<!\\)([%&#_])", r"\\\1", piece) for piece in pieces[::2])
    pieces[::2] = [piece.translate(str.maketrans(_SYMBOLS)) for piece in escaped]
    return "".join(pieces)


def to_plain(text: str) -> str:
    r"""Read LaTeX text aloud: symbols as Unicode, citations left out, references by their number, or label.

    >>> to_plain("mIoU$\\%$ of PW w $\\ softmax$, EncNet\\dag\\cite{zhang2018context}")
    'mIoU% of PW w softmax, EncNet†'
    """
    return re.sub(r"\s+", " ", _TOKEN.sub(_read, text)).strip()


def _read(token: re.Match[str]) -> str:
    if token["label"] is not None:
        return f" {REFERENCES.get(token['label'], token['label'])}"
    if token["styled"] is not None:
        return to_plain(token["styled"])
    if token["command"] is not None:
        return _READ.get(token["command"], "")
    if token["escaped"] is not None:
        return " " if token["escaped"] == "," else token["escaped"]
    return _TYPED.get(token[0], "")
