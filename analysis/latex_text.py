"""LaTeX text of declarations: escaping for LaTeX, reading aloud for Markdown and CSV.

Labels, column heads, captions and notes of declarations are LaTeX text, as the paper prints them. Text from
elsewhere (device names, error messages) goes through `quote` first and so becomes LaTeX text too.
"""

import re

# What \ref prints for labels of the paper that its tables refer to.
REFERENCES = {"sup-loss": "1"}
_SYMBOLS = {
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": r"$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "τ": r"$\tau$",
    "α": r"$\alpha$",
    "✓": r"$\surd$",
    "†": r"\dag{}",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\dots{}",
}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "^": r"\textasciicircum{}",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
}
_READ = {
    r"\surd": "✓",
    r"\dag": "†",
    r"\pm": "±",
    r"\times": "×",
    r"\cdot": "·",
    r"\leq": "≤",
    r"\geq": "≥",
    r"\to": "→",
    r"\tau": "τ",
    r"\alpha": "α",
    r"\dots": "…",
    r"\textbackslash": "\\",
    r"\textasciicircum": "^",
    r"\textasciitilde": "~",
    r"\textless": "<",
    r"\textgreater": ">",
    r"\textbar": "|",
}
# Keys of citations and references keep their characters.
_KEYED = re.compile(r"(\\(?:cite|ref|label)\{[^}]*\})")


def quote(text: str) -> str:
    """Turn any text into LaTeX text that prints it literally; characters that pdflatex lacks become '?'."""
    return "".join(_SPECIAL.get(c) or _SYMBOLS.get(c) or (c if c.isascii() or c in "éèüöäß" else "?") for c in text)


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
    text = re.sub(r"\\cite\{[^}]*\}", "", text)
    text = re.sub(r"\s?\\ref\{([^}]*)\}", lambda match: f" {REFERENCES.get(match[1], match[1])}", text)
    text = re.sub(r"\\(?:textbf|textit|emph|texttt|mathrm|text)\{([^}]*)\}", r"\1", text)
    for command, symbol in _READ.items():
        text = re.sub(re.escape(command) + r"(?:\{\}|(?![A-Za-z])\s?)", lambda _, s=symbol: s, text)
    text = re.sub(r"(?<!\\)\$", "", text)
    text = text.replace("``", "“").replace("''", "”").replace("---", "—").replace("--", "–")
    text = re.sub(r"\\([%&#_$ {}])", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()
