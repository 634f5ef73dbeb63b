"""LaTeX text of declarations: escaping for LaTeX, reading aloud for Markdown and CSV.

Labels, column heads, captions and notes of declarations are LaTeX text, as the paper prints them. Text from
elsewhere (device names, error messages) goes through `quote` first and so becomes LaTeX text too.
"""

import re

# What \ref prints for labels of the paper that its tables refer to.
REFERENCES = {"sup-loss": "1"}
# LaTeX commands and the characters that they print: in mathematics, in text, and in text that is quoted.
_MATHEMATICS = {"surd": "✓", "pm": "±", "times": "×", "cdot": "·", "leq": "≤", "geq": "≥", "tau": "τ", "alpha": "α"}
_MATHEMATICS |= {"to": "→", "uparrow": "↑", "downarrow": "↓"}
_TEXT = {"dag": "†", "dots": "…"}
_QUOTED = {"textbackslash": "\\", "textasciicircum": "^", "textasciitilde": "~"}
_QUOTED |= {"textless": "<", "textgreater": ">", "textbar": "|"}
_READ = _MATHEMATICS | _TEXT | _QUOTED
_SYMBOLS = {character: rf"$\{name}$" for name, character in _MATHEMATICS.items()}
_SYMBOLS |= {character: rf"\{name}{{}}" for name, character in _TEXT.items()}
_SYMBOLS |= {"−": "$-$", "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''"}
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
    r"|(?P<quotes>``|'')|(?P<dash>---?)|\$|\{\}"
)
# Keys of citations and references keep their characters.
_KEYED = re.compile(r"(\\(?:cite|ref|label)\{[^}]*\})")


def quote(text: str) -> str:
    """Turn any text into LaTeX text that prints it literally; characters that pdflatex lacks become '?'."""
    parts = []
    for before, c in zip(f" {text}", text, strict=False):
        if (before, c) in _LIGATURES:
            parts.append("{}")
        parts.append(_SPECIAL.get(c) or _SYMBOLS.get(c) or (c if c.isascii() or c in "éèüöäß" else "?"))
    return "".join(parts)


def to_latex(text: str) -> str:
    r"""Make LaTeX text safe to print: escape ``% & # _`` where the author left them bare, and typographic characters.

    Mathematics (between dollars) and the keys of ``\cite`` and ``\ref`` stay as they are.

    >>> to_latex("50% of a_b, $x_1$ and $\\alpha$ as in \\cite{a_b2017}")
    '50\\% of a\\_b, $x_1$ and $\\alpha$ as in \\cite{a_b2017}'
    """
    parts = []
    for index, part in enumerate(re.split(r"(?<!\\)\$", text)):
        if index % 2:
            parts.append(f"${part}$")
            continue
        for piece in _KEYED.split(part):
            if not _KEYED.fullmatch(piece):
                piece = re.sub(r"(?<!\\)([%&#_])", r"\\\1", piece)
                piece = "".join(_SYMBOLS.get(c, c) for c in piece)
            parts.append(piece)
    return "".join(parts)


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
    if token["quotes"] is not None:
        return {"``": "“", "''": "”"}[token["quotes"]]
    return {"--": "–", "---": "—"}.get(token["dash"] or "", "")
