"""Who runs this service, and in which country: said in every decision. A profile's `args` name both.

The service cannot find out by itself, so what nobody has named is `UNKNOWN_COUNTRY`, and a start says so in the log.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from contract.base import Frozen

UNKNOWN_COUNTRY = "ZZ"
"""No country has this code, and none ever will: ISO 3166 leaves it to users."""

_CODES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ
CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO
FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE
JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO
MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW
PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM
TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW
"""
COUNTRIES = frozenset(_CODES.split())
"""ISO 3166-1 alpha-2."""


def _check_country(code: str) -> str:
    if code not in COUNTRIES and code != UNKNOWN_COUNTRY:
        raise ValueError(
            f"`{code}` is no country: two capitals of ISO 3166-1 are expected, such as `DE`, or `{UNKNOWN_COUNTRY}` "
            "where it is not known"
        )
    return code


Country = Annotated[str, AfterValidator(_check_country)]
OperatorName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class Operator(Frozen):
    """Where the models of a catalogue run.

    Attributes:
        name: who runs them.
        country: ISO 3166-1 alpha-2, or `UNKNOWN_COUNTRY`.
    """

    name: OperatorName = "self-hosted"
    country: Country = UNKNOWN_COUNTRY
