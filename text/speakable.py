"""A text without what is for the eye alone, as a voice should read it; fractions and signs of quantities become words.

    speakable("**Add** 1/2 [cup](http://a.b)! 🎉", "en")    "Add one half cup!"

Silent are emoji, and the marks of Markdown: of headings, lists, quotes, tables, code, stress, links and images. A sign
that may mean something else stays: prices and formulas ("$5*2"), names in code ("snake_case", "__init__"), addresses,
dates, "Lehrer*innen". So stress is narrower than in CommonMark, which reads "2*3 and 4*5" as stressed, too.
"""

from __future__ import annotations

import builtins
import sys
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import chain
from pathlib import Path

import regex

from text.sentences import any_of

PASSES = 8
"""Removing one mark may complete another; no text that people write takes more than two passes."""

_NAMES = {name for value in vars(builtins).values() for name in dir(value)} | {*dir(sys.modules[__name__])}
_NAMES |= {"__aenter__", "__aexit__", "__all__", "__await__", "__enter__", "__exit__", "__main__", "__post_init__"}
"""Python's names between two underscores, which are no words under stress."""

_WORD = r"[\p{L}\p{M}\p{N}--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]]"
"""A sign that belongs to the word beside it, of scripts with spaces between words."""

_KEYCAP = regex.compile(r"([0-9#*])\uFE0F?\u20E3")
_PICTURE = r"[[\p{Extended_Pictographic}\p{Emoji_Modifier}\p{Regional_Indicator}]--[\0-\u218F\u3297\u3299]]"
_PICTURES = rf"(?:{_PICTURE}|\p{{Extended_Pictographic}}\uFE0F)[\u200D\uFE0E\uFE0F\u20E3\U000E0020-\U000E007F]*"
_EMOJI = regex.compile(rf"(?V1)(?<![^\S\n])[^\S\n]*+(?:{_PICTURES}[^\S\n]*)+")
_OPENING = frozenset("*_~([{<>#`\"'“„‚«")
_CLOSING = frozenset("*_~)]}.,;:!?…`\"'”’»²³")

_SIGNS = regex.compile(r"(?:(?:[ \t]*(?:>(?!=)|(?:[-+*•]|#{1,6})(?=\s|$)(?:[ \t]+\[[ xX]\](?=\s|$))?))++[ \t]*)?")
_FOOTNOTE = regex.compile(r"(?<=[^\s*])\*(?=[\s.,;:!?)]|$)")
_CLOSED_HEADING = regex.compile(r"(?<![ \t#])[ \t]+#[# \t]*+\s*+$")
_SILENT_LINE = regex.compile(r"\s*+(?:(?:[-*_][ \t]*+){3,}+|={3,}+)\s*+")
_FENCE = regex.compile(r"\s*+(`{3}(?=`*+[^`]*+$)|~{3})[`~]*+(.*)")
_TABLE_RULE = regex.compile(r"\s*+\|?(?:[ \t]*+:?-++:?[ \t]*+\|)++(?:[ \t]*+:?-++:?)?\s*+")
_ESCAPE = regex.compile(r"\\([\\`*_{}\[\]()#+\-.!~|>])")
_CODE = regex.compile(rf"(?V1)(?<!`|{_WORD})(`+)(?!`)([^\n]+?)(?<!`)\1(?!`)")
_MAIL = r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+"
_ADDRESS = rf"(?:https?://|www\.)[^\s*<>\"]*[^\s*<>\"_~.,;:!?)\]]|{_MAIL}"
_AUTOLINK = regex.compile(rf"<(https?://[^\s<>]++|{_MAIL})>")
_TARGET = r"""\(\s*+(?:<[^<>\n]*>|[^\s()<>]*+(?:\([^\s()]*\)[^\s()]*+)*+)(?:\s++(?:"[^"\n]*"|'[^'\n]*'))?\s*+\)"""
_STRONG_PART = regex.compile(r"\*\*(\p{L}{2,})\*\*")
_STRESS = regex.compile(rf"(?:{_ADDRESS})(*SKIP)(*FAIL)|(?P<run>\*+|_+|~~+)|\n\s*\n")
_BEGINS = regex.compile(rf"(?V1)(?<!{_WORD}|[\p{{Pe}}\p{{Sc}}%])[*_~](?=[^\s\p{{Pe}}.,;:!?…/=])")
_ENDS = regex.compile(rf"(?V1)(?<=\S)[*_~](?!{_WORD})")

_FRACTION = regex.compile(
    rf"""(?V1)(?<![\p{{N}}\p{{Sc}}./⁄,:+*=^_%\\−-]|{_WORD})
    (?:(?P<whole>\d{{1,3}})(?:[\ \u00A0\u202F-]|(?=[½⅓⅔¼¾⅕⅖⅗⅘⅛⅜⅝⅞])))?
    (?P<part>\d[/⁄]\d|[½⅓⅔¼¾⅕⅖⅗⅘⅛⅜⅝⅞])
    (?![\p{{N}}/⁄%]|[.,:]\d|{_WORD})""",
    regex.VERBOSE,
)
_PARTS = ("1/2", "1/3", "2/3", "1/4", "3/4", "1/5", "2/5", "3/5", "4/5", "1/8", "3/8", "5/8", "7/8")
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_WORDS = {language: row.split("; ") for language, row in _TABLES["fractions"].items()}

_MONEY = "£¥₹₩₽₺₫₴₪฿₱¢"
"""Signs of currencies that not every engine knows; all know € and $."""
_WIDE = str.maketrans("￡￥￦￠", "£¥₩¢")
PRICE = regex.compile(r"(\p{Sc}) ?(\d++(?:[.,]\d++)*+(?: ?(?i:[bmt]r?illi\p{L}+|[km]|bn)\b)?+)(?![\p{L}\p{N}/⁄])")
"""A sign of a currency, and the amount that is read before it."""
_QUANTITY = regex.compile(
    rf"(?V1)(?:{_ADDRESS})(*SKIP)(*FAIL)"
    r"|(?P<power>(?<=(?<!\d{3})\p{Nd}|(?<![\p{L}\p{M}])(?:\p{Ll}{1,2}|\p{L}))(?!¹(?![⁰¹²³⁴-⁹]))⁻?[⁰¹²³⁴-⁹]+)"
    r"|(?P<micro>(?<![\p{L}\p{M}])[µμ](?:[gmlLs](?!\p{L})|(?=\p{Latin})))"
    r"|(?P<minus>(?<![\p{L}\p{M}\p{N})\]\\_.,:/-]|\p{N}[^\S\n]?\p{Sc})-(?=\p{N})|(?<![\p{N})][^\S\n]?)−(?=\S))"
    rf"|(?P<sign>[−÷±≤≥≈‰{_MONEY}]|(?<=\p{{Nd}}[^\S\n]?)(?:×|[<>]=?(?=[^\S\n]?\p{{Nd}})))"
)


def speakable(text: str, language: str, tags: Iterable[str] = ()) -> str:
    """`text` as it is to be spoken, in `language`. `tags` of an engine, e.g. `[laughter]`, are no links."""
    for _ in range(PASSES):
        before = text
        text = _without_signs(_EMOJI.sub(_without_emoji, _KEYCAP.sub(r"\1", text)))
        text = _CODE.sub(r"\2", _ESCAPE.sub(r"\1", text))
        text = _without_links(_AUTOLINK.sub(r"\1", text), tags)
        text = with_words(_without_stress(_STRONG_PART.sub(r"\1", text)), language)
        if text == before:
            return text
        text = text.strip()
    return text


def with_words(text: str, language: str) -> str:
    """`text` with common fractions and signs of quantities in words; unchanged in a language without words for them."""
    if language not in _WORDS:
        return text
    joint, half, row = _WORDS[language]
    words: dict[str, str] = dict(zip(_PARTS, row.split(", "), strict=True))

    def worded(match: regex.Match[str]) -> str:
        part, whole = unicodedata.normalize("NFKC", match["part"]).replace("⁄", "/"), match["whole"]
        if part not in words or whole is None:
            return words.get(part, str(match[0]))
        return f"{whole} {half}" if part == "1/2" else f"{whole} {f'{joint} {words[part]}'.lstrip()}"

    signs = dict(zip(f"-−×÷±≤≥<>≈‰²³^μgmls{_MONEY}", _TABLES["signs"][language].split("; "), strict=True))
    text = PRICE.sub(lambda m: f"{m[2]} {signs[m[1]]}" if m[1] in signs else m[0], text.translate(_WIDE))
    return str(_FRACTION.sub(worded, _QUANTITY.sub(partial(_quantity, signs), text)))


def _quantity(words: dict[str, str], match: regex.Match[str]) -> str:
    """The words for a sign, apart from what is beside it."""
    sign = str(match[0])
    plain = unicodedata.normalize("NFKC", sign).replace("−", f"{words['-']} ")
    power, other = sign if sign in words else "^", {"<=": "≤", ">=": "≥"}.get(sign, sign)
    key = {"power": power, "micro": plain[-1].lower(), "minus": "-", "sign": other}[str(match.lastgroup)]
    before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
    leads, trails = before.strip() not in _OPENING | {""}, after.strip() not in _CLOSING | {""}
    return f"{' ' * leads}{words[key].format(plain)}{' ' * trails}"


def _without_emoji(match: regex.Match[str]) -> str:
    """The space that remains of emoji and the white space around them."""
    text, (start, end), leads, trails = match.string, match.span(), match[0][0].isspace(), match[0][-1].isspace()
    before, after = text[start - 1 : start], text[end : end + 1]
    if not {before, after}.isdisjoint(("", "\n")):
        return ""
    is_apart = leads or (before not in _OPENING and (trails or before.isalnum()))
    return " " if is_apart and (trails or (after not in _CLOSING and (leads or after.isalnum()))) else ""


def _without_signs(text: str) -> str:
    """`text` without the signs at the beginning of lines; headings, items and rows become paragraphs of their own."""
    lines, spoken = text.split("\n"), list[str]()
    is_table, was_own, is_noted = False, False, _FOOTNOTE.search(text)
    ends = {line.strip(" \t\r>")[:3]: number for number, line in enumerate(lines) if not line.strip("`~ \t\r>")}
    for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        is_rule = is_table and _TABLE_RULE.fullmatch(line)
        is_table = "|" in line and (is_table or _TABLE_RULE.fullmatch(following) is not None)
        signs = "" if is_noted and line[:2] == "* " else str(_SIGNS.match(line)[0])
        is_own, content = is_table or bool(signs.strip(" \t>")), line[len(signs) :]
        if "#" in signs:
            content = _CLOSED_HEADING.sub("", content)
        if is_table:
            content = ", ".join(filter(None, map(str.strip, content.strip(" \t\r|").split("|"))))
        if fence := _FENCE.fullmatch(content):
            # Around code, with the name of a language at most; elsewhere an ornament of words.
            is_code, words = number < ends.get(fence[1], 0), fence[2].strip(" \t\r~")
            content = "" if is_code and len(words.split()) < 2 else words
        if is_rule or _SILENT_LINE.fullmatch(content):
            content = ""
        if content.strip() and spoken and spoken[-1].strip() and (is_own or (was_own and not line[:1].isspace())):
            spoken.append("")
        spoken.append(content)
        was_own = is_own
    return "\n".join(spoken)


def _without_links(text: str, tags: Iterable[str]) -> str:
    """`text` with links and images as their words."""
    waiting, cuts = list[tuple[int, int]](), list[tuple[int, int]]()
    brackets = rf"(?V1)(?:{any_of(tags)})(*SKIP)(*FAIL)|(?<!{_WORD})!?\[|\](?P<target>{_TARGET})?"
    for match in regex.finditer(brackets, text):
        if match[0].endswith("["):
            waiting.append(match.span())
        elif waiting:
            start = waiting.pop()
            cuts += [start, match.span()] if match["target"] else []
    return _cut(text, cuts)


def _without_stress(text: str) -> str:
    """`text` without the pairs of stars, underscores and tildes around words."""
    waiting, cuts = defaultdict[str, list[tuple[int, int]]](list), list[tuple[int, int]]()
    for match in _STRESS.finditer(text):
        if not match["run"]:
            waiting.clear()
            continue
        (start, end), before = match.span("run"), waiting[match["run"][0]]
        ends = _ENDS.match(text, start)
        while ends and before and start < end:
            first, last = before.pop()
            if text[first:end] in _NAMES:
                break
            length = min(last - first, end - start)
            cuts += [(last - length, last), (start, start + length)]
            start += length
            if first < last - length:
                before.append((first, last - length))
        if start < end and _BEGINS.match(text, match.start()):
            before.append((start, end))
    return _cut(text, cuts)


def _cut(text: str, cuts: Iterable[tuple[int, int]]) -> str:
    edges = [0, *chain(*sorted(cuts)), len(text)]
    return "".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
