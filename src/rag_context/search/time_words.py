"""The words for times in questions, in English, German, French, Spanish and Russian: from each word to its meaning."""

from collections.abc import Mapping


def _meanings(table: Mapping[int | str, str]) -> dict[str, int]:
    return {word: int(meaning) for meaning, words in table.items() for word in words.split()}


def _phrases(table: Mapping[str, str]) -> dict[str, str]:
    return {phrase: meaning for meaning, phrases in table.items() for phrase in phrases.split("|")}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MONTHS = _meanings(
    {
        1: "january januar janvier enero январь январе января jan",
        2: "february februar février fevrier febrero февраль феврале февраля feb",
        3: "march märz maerz mars marzo март марте марта mar",
        4: "april avril abril апрель апреле апреля apr",
        5: "may mai mayo май мае мая",
        6: "june juni juin junio июнь июне июня jun",
        7: "july juli juillet julio июль июле июля jul",
        8: "august août aout agosto август августе августа aug",
        9: "september septembre septiembre сентябрь сентябре сентября sep sept",
        10: "october oktober octobre octubre октябрь октябре октября oct",
        11: "november novembre noviembre ноябрь ноябре ноября nov",
        12: "december dezember décembre decembre diciembre декабрь декабре декабря dec",
    }
)
VERBS = frozenset({"may", "march", "mars"})
"""In small letters these are months only behind a word such as `in`, or with a year."""

ABBREVIATIONS = _words("jan feb mar apr jun jul aug sep sept oct nov dec")
NAMES = frozenset({*VERBS, *ABBREVIATIONS, "april", "june", "august"})
"""What people, planets and columns are called too: alone, these are no months."""

UNITS = _phrases(
    {
        "hour": "hour|hours|stunde|stunden|heure|heures|hora|horas|час|часа|часов",
        "day": "day|days|tag|tage|tagen|jour|jours|día|días|dia|dias|день|дня|дней",
        "week": "week|weeks|woche|wochen|semaine|semaines|semana|semanas|неделя|недели|неделе|неделю|недель",
        "weekend": "weekend|wochenende|week-end",
        "month": "month|months|monat|monate|monaten|monats|mois|mes|meses|месяц|месяца|месяце|месяцев",
        "quarter": "quarter|quarters|quartal",
        "year": "year|years|jahr|jahre|jahren|an|ans|année|années|año|años|год|года|году|лет",
    }
)
NUMBERS = _meanings(
    {
        1: "a an one ein eine einem einer un une una один одну",
        2: "two couple zwei deux dos два две",
        3: "three few drei trois tres три",
        4: "four vier quatre cuatro четыре",
        5: "five fünf cinq cinco пять",
        6: "six sechs seis шесть",
        7: "seven sieben sept siete семь",
        8: "eight acht huit ocho восемь",
        9: "nine neun neuf nueve девять",
        10: "ten zehn dix diez десять",
    }
)
WEEKDAYS = _meanings(
    {
        0: "monday montag lundi lunes понедельник",
        1: "tuesday dienstag mardi martes вторник",
        2: "wednesday mittwoch mercredi miércoles среду",
        3: "thursday donnerstag jeudi jueves четверг",
        4: "friday freitag vendredi viernes пятницу",
        5: "saturday samstag samedi sábado субботу",
        6: "sunday sonntag dimanche domingo воскресенье",
    }
)
DAYS = {
    phrase: int(days)
    for phrase, days in _phrases(
        {
            "-2": "day before yesterday|vorgestern|avant-hier|anteayer|позавчера",
            "-1": "yesterday|last night|gestern|hier|hier soir|ayer|anoche|вчера",
            "0": "today|this morning|this afternoon|this evening|tonight|heute|aujourd'hui|ce matin|hoy|сегодня",
        }
    ).items()
}
HIER = "hier"
"""Yesterday in French, here in German."""

FRENCH = _words("nous avons avez ont quoi que qu quel quelle le la ai est été c")

SINCE, UNTIL, BEFORE, AFTER, BETWEEN, NEXT, IN, OF = "since", "until", "before", "after", "between", "next", "in", "of"
RELATIONS = _phrases(
    {
        SINCE: "since|starting|ab|seit|depuis|desde|с",
        UNTIL: "as of|until|till|by|up to|bis|hasta|по состоянию на",
        BEFORE: "before|prior to|vor|avant|antes de|antes del|до",
        AFTER: "after|nach|après|después de|después del|после",
        BETWEEN: "between|from|zwischen|von|entre|между",
        NEXT: "next|coming|nächsten|nächste|prochain|próximo",
        IN: "in|during|throughout|within|im|en|в|за|на",
        OF: "of|for|around|on|am|vom|du|de|el|le|des",
    }
)
PARTS = _phrases(
    {
        "early": "early|beginning of|start of|anfang|début|a principios de|в начале",
        "mid": "mid|middle of|mitte|mi|a mediados de|в середине",
        "late": "late|end of|ende|fin|a finales de|в конце",
    }
)
LAST = _phrases(
    {
        "last": "last|previous|letzte|letzten|letztem|letztes|letzter|vorige|vorigen|voriges|прошлый|прошлом|прошлой|"
        "прошлую|прошлого",
        "rolling": "past|vergangene|vergangenen|vergangenes|последний|последние|последних|последнюю|últimos|últimas",
        "this": "this|diese|diesen|diesem|dieses|dieser|cette|esta|este|эту|этой|этом|этот",
    }
)
BEHIND = _phrases(
    {
        "last": "dernier|dernière|derniers|dernières|passé|passée|pasado|pasada|pasados|pasadas",
    }
)
AGO = ("vor", "il y a", "hace")
"""Before a number and a unit."""

AGO_BEHIND = ("ago", "назад")
"""Behind them."""

JOINERS = _words("and to till until through - – und bis et à au y a al и по до")

FOLLOWING = _words(
    "and or but did do does was were is are has have had the we i it they he she you who what when which how why "
    "where to about on with by for und haben wir wurde ist nous on que qu до мы года году год"
)
"""What may follow on a year that stands alone; behind "in 2000" a noun makes it a number."""
