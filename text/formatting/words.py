"""Words that count or negate, of many languages, all in one table: no word of it has another value in another language.

spoken_ordinal(["und", "zweitens", "eier"]) -> Ordinal(value=2, is_certain=True)     what begins an item of a list
is_number("einundzwanzig"), is_negation("keinerlei"), negates("möglich", "unmöglich")

Of numbers and negations too many are better than too few: a word that is listed here may not change at all, others may
once in a while.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

CERTAIN = (
    "erstens zweitens drittens viertens fünftens sechstens siebtens achtens neuntens zehntens",
    "firstly secondly thirdly fourthly fifthly sixthly seventhly eighthly ninthly tenthly",
    "premièrement deuxièmement troisièmement quatrièmement cinquièmement sixièmement septièmement huitièmement",
)
"""Words that do nothing but count items."""

POSSIBLE = (
    "first second third fourth fifth sixth seventh eighth ninth tenth",
    "primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo",
    "primo secondo terzo quarto quinto sesto settimo ottavo nono decimo",
    "primeiro segundo terceiro quarto quinto sexto sétimo oitavo nono décimo",
)
"""Words that count items at the beginning of a sentence, and are adjectives elsewhere."""

AFTER = {
    "als": "erstes zweites drittes viertes fünftes sechstes siebtes achtes neuntes zehntes",
    "ten": "eerste tweede derde vierde vijfde zesde zevende achtste negende tiende",
    "en": "primer segundo tercer cuarto quinto",
    "in": "primo secondo terzo quarto quinto",
    "em": "primeiro segundo terceiro quarto quinto",
}
"""Words that count items after another word: `als erstes`, `ten eerste`, `en primer lugar`."""

_HEADS = "punkt nummer schritt point number step item numéro étape punto número paso numero passo ponto punt stap"
HEADS = frozenset(_HEADS.split())
"""What is counted with numbers: `Punkt eins`, `step 2`."""

NUMERALS = (
    "eins zwei drei vier fünf sechs sieben acht neun zehn",
    "one two three four five six seven eight nine ten",
    "un deux trois quatre cinq six sept huit neuf dix",
    "uno dos tres cuatro cinco seis siete ocho nueve diez",
    "uno due tre quattro cinque sei sette otto nove dieci",
    "um dois três quatro cinco seis sete oito nove dez",
    "een twee drie vier vijf zes zeven acht negen tien",
    "1 2 3 4 5 6 7 8 9 10",
)

CONNECTIVES = frozenset({"und", "and", "et", "y", "e", "en", "ed"})
"""What may stand before the last item."""


class Ordinal(NamedTuple):
    """The number of an item. It `is_certain` where the word can mean nothing else."""

    value: int
    is_certain: bool


def _values(*lines: str) -> dict[str, int]:
    return {word: value for line in lines for value, word in enumerate(line.split(), 1)}


_CERTAIN = _values(*CERTAIN)
_POSSIBLE = _values(*POSSIBLE)
_AFTER = {lead: _values(line) for lead, line in AFTER.items()}
_NUMERALS = _values(*NUMERALS)

ORDINALS = frozenset(_CERTAIN) | frozenset(_POSSIBLE) | {word for values in _AFTER.values() for word in values}
"""Every ordinal."""


def spoken_ordinal(words: Sequence[str]) -> Ordinal | None:
    """The ordinal that `words`, in lower case, begin with, if it begins an item. Only three of them count."""
    if words and words[0] in CONNECTIVES:
        ordinal = _ordinal(words[1:])
        # "and second" may be any second; "and secondly" is not.
        if ordinal and ordinal.is_certain:
            return ordinal
    return _ordinal(words)


def _ordinal(words: Sequence[str]) -> Ordinal | None:
    first, second = (*words[:2], "", "")[:2]
    if first in _CERTAIN:
        return Ordinal(_CERTAIN[first], True)
    if first in _POSSIBLE:
        return Ordinal(_POSSIBLE[first], False)
    if first in HEADS and second in _NUMERALS:
        return Ordinal(_NUMERALS[second], False)
    if value := _AFTER.get(first, {}).get(second):
        return Ordinal(value, False)
    return None


_NUMBERS = """
null ein elf zwölf zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend million milliarde
millionen milliarden billion billionen dutzend halb halbe halber halbes hälfte anderthalb eineinhalb viertel drittel
beide beiden einmal zweimal dreimal doppelt doppelte dreifach minus plus komma prozent promille erste ersten erster
zweite zweiten zweiter dritte dritten dritter vierte vierten fünfte fünften sechste siebte achte neunte zehnte
zero eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty
seventy eighty ninety hundred thousand billion trillion hundreds thousands millions billions dozen dozens half halves
quarter quarters third thirds once twice thrice double triple both point percent eleventh twelfth thirteenth twentieth
zéro une onze douze treize quatorze quinze seize vingt trente quarante cinquante soixante septante huitante nonante
cent cents mille milliard millions moitié demi demie quart tiers virgule moins pourcent premier première deuxième
troisième fois
cero una once doce trece catorce quince dieciséis veinte veintiuno treinta cuarenta cincuenta sesenta setenta ochenta
noventa cien ciento cientos mil millón millones medio media mitad cuarto menos coma primera segunda tercer tercera
undici dodici tredici quattordici quindici sedici venti trenta quaranta cinquanta sessanta settanta ottanta novanta
cento mila milione milioni miliardo mezzo mezza metà virgola meno prima seconda terza
zero uma doze treze catorze quinze dezesseis vinte trinta quarenta cinquenta sessenta setenta oitenta noventa cem
milhão milhões meio meia metade vírgula primeira segunda terceira duas
nul één elf twaalf dertien veertien vijftien zestien twintig dertig veertig vijftig zestig zeventig tachtig negentig
honderd duizend miljoen miljard helft kwart anderhalf procent eerste tweede derde min
ноль один одна одно два две три четыре пять шесть семь восемь девять десять двадцать тридцать сорок пятьдесят сто
тысяча тысячи тысяч миллион миллиона миллионов половина минус первый второй третий
jeden jedna dwa dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć sto tysiąc tysiące tysięcy milion pół
零 〇 一 二 三 四 五 六 七 八 九 十 百 千 万 萬 亿 億 两 兩 半 第
"""

_NEGATIONS = """
nicht nichts nein nie niemals niemand niemanden niemandem nirgends nirgendwo nimmer weder noch ohne kaum
no not none never nobody nothing nowhere neither nor without cannot nope hardly barely unless dont doesnt didnt wont
cant isnt arent wasnt werent shouldnt wouldnt couldnt hasnt havent hadnt aint
ne pas non jamais rien aucun aucune personne sans ni nul nulle plus guère
nunca jamás nadie nada ningún ninguno ninguna tampoco sin
mai né nessun nessuno nessuna niente nulla neanche nemmeno neppure senza
não nem ninguém nenhum nenhuma sem jamais
niet niets nee nooit geen niemand nergens zonder noch evenmin
inte icke ej aldrig ingen inget inga utan ikke aldri ingenting uten uden ingen intet
ei en et emme ette eivät älä ilman koskaan
не нет ни никогда никто ничего нельзя без нету нигде
ні ніколи ніхто нічого нема немає жоден
nie nigdy nikt nic bez ani żaden żadna żadne
nikdy nikdo není nejsem nemám žádný žádná
nem ne nincs sem soha senki semmi nélkül
nu fără niciodată nimeni nimic nici
δεν μη μην όχι ποτέ κανείς χωρίς ούτε
değil yok hayır hiç asla olmadan
لا ليس لم لن ما بدون غير ولا
לא אין אל בלי אף
नहीं न मत ना बिना
안 못 아니 없이
不 没 沒 無 无 未 非 别 別 勿 毋
"""

_NEGATIVE = re.compile(r"kein\w{0,4}|\w+n't|n'\w+|не\w{2,}|ничто\w*|없\w*|않\w*|아니\w*")

_PARTS = (
    "ein|eine|eins|zwei|zwo|drei|vier|fünf|sech|sechs|sieb|sieben|acht|neun|zehn|elf|zwölf|zwanzig|dreißig|dreissig|"
    "zig|und|hundert|tausend|million|millionen|mal|fach|te|ten|ter|tes|ste|sten",
    "een|één|twee|drie|vier|vijf|zes|zeven|acht|negen|tien|elf|twaalf|dertien|veertien|twintig|dertig|veertig|tachtig|"
    "tig|en|ën|honderd|duizend|de|ste",
    "un|uno|due|tre|tré|quattro|cinque|sei|sette|otto|nove|dieci|venti|vent|trenta|trent|quaranta|quarant|cinquanta|"
    "cinquant|sessanta|settanta|ottanta|novanta|cento|mila|mille",
)
"""Parts of numbers, in languages that write them as one word."""

_COMPOUND = re.compile("|".join(f"(?:{parts}){{2,12}}" for parts in _PARTS))
_ROMAN = re.compile("(?=..)x{0,3}(ix|iv|v?i{0,3})")
_LONGEST = 60
"""Longer words are not compared with compound numbers, in characters."""

NUMBER_WORDS = frozenset(_NUMBERS.split()) | {word for line in NUMERALS for word in line.split()} | ORDINALS
NEGATIONS = frozenset(_NEGATIONS.split())

_PREFIXES = "un in im il ir dis non nicht miss mis anti ohn a an ent des ont de re on не без бес"
_NEGATING_PREFIXES = frozenset(_PREFIXES.split())
"""Beginnings of words that may turn them into their opposite."""

_SUFFIXES = "los lose loser loses losen frei freie freien less free loos vrij"
_NEGATING_SUFFIXES = frozenset(_SUFFIXES.split())
"""Endings of words that may turn them into their opposite."""


def is_number(word: str) -> bool:
    """Whether `word`, in lower case, says how many, which of several, or how a number is read."""
    if word in NUMBER_WORDS:
        return True
    return len(word) <= _LONGEST and bool(_COMPOUND.fullmatch(word) or _ROMAN.fullmatch(word))


def is_negation(word: str) -> bool:
    """Whether `word`, in lower case, negates."""
    return word in NEGATIONS or bool(_NEGATIVE.fullmatch(word))


def negates(word: str, other: str) -> bool:
    """Whether one of both words may be the opposite of the other: `möglich` and `unmöglich`."""
    short, long = sorted((word, other), key=len)
    return long.removesuffix(short) in _NEGATING_PREFIXES or long.removeprefix(short) in _NEGATING_SUFFIXES
