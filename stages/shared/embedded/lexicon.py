"""The words of the embedded corpus: English lemmas, each with equally good German translations."""

from __future__ import annotations

from typing import Literal, NamedTuple

Gender = Literal["m", "f", "n"]


class GermanNoun(NamedTuple):
    gender: Gender
    singular: str
    plural: str
    oblique: str
    """Accusative and dative singular, which differ from the nominative in the weak declension."""

    @property
    def dative_plural(self) -> str:
        return self.plural if self.plural[-1] in "ns" else self.plural + "n"


class Noun(NamedTuple):
    singular: str
    plural: str
    german: tuple[GermanNoun, ...]
    relative: str = "that"
    """English relative pronoun."""


class GermanVerb(NamedTuple):
    particle: str
    """Separable prefix, or empty."""
    infinitive: str
    """Without the particle; also the third person plural."""
    third: str
    """Third person singular, without the particle."""
    participle: str
    auxiliary: Literal["haben", "sein"]


class Verb(NamedTuple):
    base: str
    third: str
    past: str
    german: tuple[GermanVerb, ...]
    direct: tuple[str, ...] = ()
    """Nouns that may be the accusative object; empty for a verb without one."""
    dative: bool = False
    """True if the verb takes a person in the dative."""
    manner: bool = False
    """True if the verb permits an adverb of manner."""
    place: bool = True
    """True if the verb permits an adverb of place."""


class Modal(NamedTuple):
    singular: str
    plural: str
    german_singular: str
    german_plural: str
    negative: str
    """English negative; empty if its meaning differs from the German negative."""


class Adverb(NamedTuple):
    english: str
    german: tuple[str, ...]


class Adjective(NamedTuple):
    english: str
    german: tuple[str, ...]
    """Stems without endings."""


class Determiner(NamedTuple):
    english: str
    stem: str
    """German stem; `declension` determines the endings (`stages.shared.embedded.german`)."""
    declension: Literal["definite", "demonstrative", "ein", "strong", "fixed"]
    plural: bool = False
    """True for a determiner of plural nouns. Each determiner is for one number."""


class Conjunction(NamedTuple):
    english: str
    german: tuple[str, ...]


def _noun(english: str, *german: str, plural: str = "", relative: str = "that") -> Noun:
    """Return a noun. German nouns are written `gender singular plural [oblique]`."""
    words = [word.split() for word in german]
    nouns = tuple(GermanNoun(w[0], w[1], w[2], w[3] if len(w) > 3 else w[1]) for w in words)  # type: ignore[arg-type]
    return Noun(english, plural or english + "s", nouns, relative)


def _person(english: str, *german: str, plural: str = "") -> Noun:
    return _noun(english, *german, plural=plural, relative="who")


PEOPLE = (
    _person("man", "m Mann Männer", plural="men"), _person("woman", "f Frau Frauen", plural="women"),
    _person("child", "n Kind Kinder", plural="children"), _person("girl", "n Mädchen Mädchen"),
    _person("boy", "m Junge Jungen Jungen"), _person("teacher", "m Lehrer Lehrer", "f Lehrerin Lehrerinnen"),
    _person("doctor", "m Arzt Ärzte", "f Ärztin Ärztinnen"),
    _person("student", "m Student Studenten Studenten", "m Schüler Schüler"),
    _person("neighbour", "m Nachbar Nachbarn Nachbarn", "f Nachbarin Nachbarinnen"), _person("friend", "m Freund Freunde"),
    _person("farmer", "m Bauer Bauern Bauern", "m Landwirt Landwirte"), _person("guest", "m Gast Gäste"),
    _person("writer", "m Schriftsteller Schriftsteller", "m Autor Autoren"),
    _person("grandmother", "f Großmutter Großmütter", "f Oma Omas"), _person("sister", "f Schwester Schwestern"),
    _person("brother", "m Bruder Brüder"),
)  # fmt: skip
ANIMALS = (
    _noun("dog", "m Hund Hunde"),
    _noun("cat", "f Katze Katzen"),
    _noun("horse", "n Pferd Pferde"),
    _noun("bird", "m Vogel Vögel"),
)
THINGS = (
    _noun("book", "n Buch Bücher"), _noun("letter", "m Brief Briefe"), _noun("newspaper", "f Zeitung Zeitungen"),
    _noun("story", "f Geschichte Geschichten", "f Erzählung Erzählungen", plural="stories"), _noun("picture", "n Bild Bilder"),
    _noun("door", "f Tür Türen"), _noun("window", "n Fenster Fenster"),
    _noun("box", "f Kiste Kisten", "f Schachtel Schachteln", plural="boxes"), _noun("suitcase", "m Koffer Koffer"),
    _noun("shop", "m Laden Läden", "n Geschäft Geschäfte"), _noun("lamp", "f Lampe Lampen"),
    _noun("computer", "m Computer Computer", "m Rechner Rechner"), _noun("phone", "n Telefon Telefone", "n Handy Handys"),
    _noun("car", "n Auto Autos", "m Wagen Wagen"), _noun("bicycle", "n Fahrrad Fahrräder", "n Rad Räder"),
    _noun("table", "m Tisch Tische"), _noun("coat", "m Mantel Mäntel"), _noun("bag", "f Tasche Taschen"),
    _noun("key", "m Schlüssel Schlüssel"), _noun("flower", "f Blume Blumen"), _noun("apple", "m Apfel Äpfel"),
    _noun("cake", "m Kuchen Kuchen"), _noun("house", "n Haus Häuser"), _noun("village", "n Dorf Dörfer"),
    _noun("city", "f Stadt Städte", plural="cities"),
)  # fmt: skip
NOUNS = {noun.singular: noun for noun in PEOPLE + ANIMALS + THINGS}


def _verb(
    forms: str,
    *german: str,
    direct: tuple[str, ...] = (),
    dative: bool = False,
    manner: bool = False,
    place: bool = True,
) -> Verb:
    """Return a verb. English forms: `base, third, past`. German forms: `[particle|]infinitive third participle [sein]`, with `sein`
    if that is the auxiliary."""
    base, third, past = forms.split(", ")
    return Verb(base, third, past, tuple(map(_german_verb, german)), direct, dative, manner, place)


def _german_verb(text: str) -> GermanVerb:
    first, third, participle, *auxiliary = text.split()
    particle, _, infinitive = first.rpartition("|")
    return GermanVerb(particle, infinitive, third, participle, "sein" if auxiliary else "haben")


_PEOPLE = tuple(noun.singular for noun in PEOPLE)
_BEINGS = _PEOPLE + tuple(noun.singular for noun in ANIMALS)
_READ = ("book", "letter", "newspaper", "story")
_DEVICES = ("lamp", "computer", "phone")
_OPEN = ("door", "window", "box", "suitcase", "shop", "bag")
_CLEAN = ("window", "car", "table", "lamp", "coat", "bag", "bicycle", "door")
_GIFTS = ("book", "letter", "newspaper", "picture", "box", "phone", "bag", "key", "flower", "apple", "cake", "bicycle")
_GOODS = (*_GIFTS, "suitcase", "lamp", "computer", "car", "table", "coat")

TRANSITIVE = (
    _verb("read, reads, read", "lesen liest gelesen", direct=_READ, manner=True),
    _verb("write, writes, wrote", "schreiben schreibt geschrieben", "verfassen verfasst verfasst", direct=_READ[:2], manner=True),
    _verb("open, opens, opened", "auf|machen macht aufgemacht", "öffnen öffnet geöffnet", direct=_OPEN, manner=True),
    _verb("close, closes, closed", "zu|machen macht zugemacht", "schließen schließt geschlossen", direct=_OPEN, manner=True),
    _verb("turn on, turns on, turned on", "ein|schalten schaltet eingeschaltet", "an|machen macht angemacht", direct=_DEVICES),
    _verb("turn off, turns off, turned off", "aus|schalten schaltet ausgeschaltet", "aus|machen macht ausgemacht", direct=_DEVICES),
    _verb("buy, buys, bought", "kaufen kauft gekauft", "erwerben erwirbt erworben", direct=_GOODS),
    _verb("sell, sells, sold", "verkaufen verkauft verkauft", direct=_GOODS),
    _verb("see, sees, saw", "sehen sieht gesehen", direct=_BEINGS + _GOODS),
    _verb("look for, looks for, looked for", "suchen sucht gesucht", direct=_BEINGS + _GOODS),
    _verb("find, finds, found", "finden findet gefunden", direct=_BEINGS + _GOODS),
    _verb("clean, cleans, cleaned", "putzen putzt geputzt", "reinigen reinigt gereinigt", direct=_CLEAN, manner=True),
    _verb("repair, repairs, repaired", "reparieren repariert repariert", direct=("car", "bicycle", *_DEVICES), manner=True),
    _verb("eat, eats, ate", "essen isst gegessen", direct=("apple", "cake"), manner=True),
    _verb("throw away, throws away, threw away", "weg|werfen wirft weggeworfen", direct=_GIFTS),
    _verb("bring along, brings along, brought along", "mit|bringen bringt mitgebracht", direct=_GIFTS, place=False),
    _verb("call, calls, called", "an|rufen ruft angerufen", direct=_PEOPLE),
    _verb("pick up, picks up, picked up", "ab|holen holt abgeholt", direct=(*_PEOPLE, "suitcase", "letter")),
    _verb("invite, invites, invited", "ein|laden lädt eingeladen", direct=_PEOPLE, place=False),
    _verb("visit, visits, visited", "besuchen besucht besucht", direct=_PEOPLE),
    _verb("know, knows, knew", "kennen kennt gekannt", direct=_PEOPLE, place=False),
    _verb("love, loves, loved", "lieben liebt geliebt", direct=_BEINGS, place=False),
)  # fmt: skip
INTRANSITIVE = (
    _verb("sleep, sleeps, slept", "schlafen schläft geschlafen"),
    _verb("work, works, worked", "arbeiten arbeitet gearbeitet", manner=True),
    _verb("laugh, laughs, laughed", "lachen lacht gelacht", manner=True),
    _verb("dance, dances, danced", "tanzen tanzt getanzt", manner=True),
    _verb("sing, sings, sang", "singen singt gesungen", manner=True),
    _verb("wait, waits, waited", "warten wartet gewartet"),
    _verb("arrive, arrives, arrived", "an|kommen kommt angekommen sein", "ein|treffen trifft eingetroffen sein"),
    _verb("leave, leaves, left", "weg|gehen geht weggegangen sein", "fort|gehen geht fortgegangen sein", manner=True, place=False),
    _verb("get up, gets up, got up", "auf|stehen steht aufgestanden sein", manner=True, place=False),
    _verb("fall asleep, falls asleep, fell asleep", "ein|schlafen schläft eingeschlafen sein"),
    _verb(
        "come back, comes back, came back",
        "zurück|kommen kommt zurückgekommen sein",
        "zurück|kehren kehrt zurückgekehrt sein",
        place=False,
    ),
)
DATIVE = (
    _verb("help, helps, helped", "helfen hilft geholfen", dative=True),
    _verb("thank, thanks, thanked", "danken dankt gedankt", dative=True),
    _verb("listen to, listens to, listened to", "zu|hören hört zugehört", dative=True),
    _verb("follow, follows, followed", "folgen folgt gefolgt sein", dative=True, manner=True),
    _verb("answer, answers, answered", "antworten antwortet geantwortet", dative=True),
)
DITRANSITIVE = (
    _verb("give, gives, gave", "geben gibt gegeben", direct=_GIFTS, dative=True),
    _verb("show, shows, showed", "zeigen zeigt gezeigt", direct=_GIFTS, dative=True),
    _verb("send, sends, sent", "schicken schickt geschickt", "senden sendet gesendet", direct=_GIFTS[:5], dative=True, place=False),
    _verb("lend, lends, lent", "leihen leiht geliehen", direct=_GIFTS[:7], dative=True, place=False),
)
REPORTING = (
    _verb("say, says, said", "sagen sagt gesagt"),
    _verb("think, thinks, thought", "denken denkt gedacht", "glauben glaubt geglaubt"),
    _verb("know, knows, knew", "wissen weiß gewusst"),
    _verb("hope, hopes, hoped", "hoffen hofft gehofft"),
)
"""Verbs of a main clause that take a dass-clause."""

MODALS = (
    Modal("must", "must", "muss", "müssen", ""),
    Modal("can", "can", "kann", "können", "cannot"),
    Modal("wants to", "want to", "will", "wollen", "not want to"),
    Modal("should", "should", "soll", "sollen", "should not"),
    Modal("may", "may", "darf", "dürfen", "may not"),
    Modal("will", "will", "wird", "werden", "will not"),
)

PAST_TIMES = (
    Adverb("yesterday", ("gestern",)),
    Adverb("last week", ("letzte Woche",)),
    Adverb("this morning", ("heute Morgen", "heute früh")),
)
PRESENT_TIMES = (
    Adverb("today", ("heute",)),
    Adverb("now", ("jetzt", "nun")),
    Adverb("every day", ("jeden Tag", "täglich")),
    Adverb("in the evening", ("am Abend", "abends")),
    Adverb("at the weekend", ("am Wochenende",)),
)
ONCE = PRESENT_TIMES[:2]
"""Times with the same meaning in a negated clause ("not every day" does not mean "never")."""
COMING_TIMES = (Adverb("tomorrow", ("morgen",)), Adverb("soon", ("bald",)), *PRESENT_TIMES)
FREQUENCIES = (Adverb("often", ("oft", "häufig")), Adverb("sometimes", ("manchmal", "ab und zu")))
MANNERS = (
    Adverb("quickly", ("schnell", "rasch")),
    Adverb("quietly", ("leise",)),
    Adverb("slowly", ("langsam",)),
    Adverb("carefully", ("vorsichtig", "behutsam")),
)
PLACES = (
    Adverb("in the garden", ("im Garten",)),
    Adverb("in the kitchen", ("in der Küche",)),
    Adverb("at home", ("zu Hause", "daheim")),
    Adverb("at the station", ("am Bahnhof",)),
    Adverb("in the park", ("im Park",)),
    Adverb("at school", ("in der Schule",)),
)
PERSON_ADJECTIVES = (
    Adjective("old", ("alt",)), Adjective("young", ("jung",)), Adjective("small", ("klein",)), Adjective("tired", ("müd",)),
    Adjective("friendly", ("freundlich", "nett")), Adjective("clever", ("klug", "schlau")),
    Adjective("famous", ("berühmt", "bekannt")),
)  # fmt: skip
THING_ADJECTIVES = (
    Adjective("old", ("alt",)), Adjective("new", ("neu",)), Adjective("small", ("klein",)), Adjective("big", ("groß",)),
    Adjective("red", ("rot",)), Adjective("green", ("grün",)), Adjective("heavy", ("schwer",)),
    Adjective("strange", ("seltsam", "merkwürdig")),
)  # fmt: skip

THE = Determiner("the", "", "definite")
A = Determiner("a", "ein", "ein")
NO = Determiner("a", "kein", "ein")
"""The determiner `a` in a negated German clause."""
EVERY = Determiner("every", "jed", "demonstrative")
SINGULAR_DETERMINERS = (
    *(THE,) * 4, *(A,) * 3, Determiner("this", "dies", "demonstrative"), Determiner("my", "mein", "ein"),
    Determiner("his", "sein", "ein"), Determiner("her", "ihr", "ein"),
)  # fmt: skip
THE_PLURAL = Determiner("the", "", "definite", plural=True)
PLURAL_DETERMINERS = (
    *(THE_PLURAL,) * 4, Determiner("these", "dies", "demonstrative", plural=True),
    Determiner("many", "viel", "strong", plural=True), Determiner("some", "einig", "strong", plural=True),
    Determiner("two", "zwei", "fixed", plural=True), Determiner("three", "drei", "fixed", plural=True),
    Determiner("my", "mein", "ein", plural=True), Determiner("her", "ihr", "ein", plural=True),
)  # fmt: skip
VAGUE = frozenset({"a", "many", "some", "two", "three", "every"})
"""Determiners whose meaning in a negated clause depends on the position of the negation."""

MODIFIERS = (
    ("with", "mit", ("bag", "dog", "coat", "suitcase", "bicycle", "flower")),
    ("from", "aus", ("village", "city")),
    ("next to", "neben", ("door", "window", "car", "table")),
    ("behind", "hinter", ("house", "car")),
    ("in front of", "vor", ("shop", "house", "window")),
)
"""English preposition, German preposition (dative) and nouns of phrases between a subject and its verb."""

SUBORDINATORS = (
    Conjunction("because", ("weil", "da")),
    Conjunction("although", ("obwohl", "obgleich")),
    Conjunction("while", ("während",)),
)
PRESENT_SUBORDINATORS = (Conjunction("if", ("wenn", "falls")), Conjunction("before", ("bevor", "ehe")))
COORDINATORS = (Conjunction("and", ("und",)), Conjunction("but", (", aber",)))
QUESTION_WORDS = (
    Conjunction("", ("",)),
    Conjunction("why", ("warum", "wieso", "weshalb")),
    Conjunction("when", ("wann",)),
    Conjunction("where", ("wo",)),
)
