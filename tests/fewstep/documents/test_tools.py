"""Files in the shapes of OmegaT, OPUS and Weblate: read as by the Translate Toolkit, translated, and written back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from translate.storage import po as toolkit_po
from translate.storage import tmx as toolkit_tmx
from translate.storage import xliff as toolkit_xliff

from fewstep.documents import po, tmx, xliff
from tests.fewstep.documents.test_translate import Echo, translated

OMEGAT = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationtool="OmegaT" o-tmf="OmegaT TMX" adminlang="EN-US" datatype="plaintext" creationtoolversion="6.0.0_0" \
segtype="sentence" srclang="en"/>
  <body>
<!-- Default translations -->
    <tu>
      <note>checked &amp; right</note>
      <prop type="file">manual.txt</prop>
      <tuv xml:lang="en">
        <seg>Save the file &amp; close it.</seg>
      </tuv>
      <tuv xml:lang="fr" changeid="me" changedate="20260102T030405Z" creationid="me" creationdate="20260102T030405Z">
        <seg>Enregistrez le fichier et fermez-le.</seg>
      </tuv>
    </tu>
    <tu>
      <tuv xml:lang="en">
        <seg>Press <bpt i="0" x="1">&lt;b1&gt;</bpt>OK<ept i="0">&lt;/b1&gt;</ept>.</seg>
      </tuv>
    </tu>
<!-- Alternative translations -->
  </body>
</tmx>
"""
OPUS = """\
<?xml version="1.0" encoding="UTF-8" ?>
<tmx version="1.4">
<header creationdate="Tue Jan  2 03:04:05 2026"
          srclang="en"
          adminlang="en"
          o-tmf="unknown"
          segtype="sentence"
          creationtool="Uplug"
          creationtoolversion="unknown"
          datatype="PlainText" />
  <body>
    <tu>
      <tuv xml:lang="en"><seg>Good morning, Mr. Smith.</seg></tuv>
      <tuv xml:lang="fr"><seg>Bonjour, M. Smith.</seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="en"><seg>1 &lt; 2</seg></tuv>
      <tuv xml:lang="fr"><seg>1 &lt; 2 &#233;</seg></tuv>
    </tu>
    <tu>
      <tuv xml:lang="en"><seg>Only here.</seg></tuv>
    </tu>
  </body>
</tmx>
"""
WEBLATE = """\
# Translations of a program.
# Someone <someone@example.org>, 2026.
msgid ""
msgstr ""
"Project-Id-Version: program 1\\n"
"PO-Revision-Date: 2026-01-02 03:04+0000\\n"
"Language: fr\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Plural-Forms: nplurals=2; plural=n > 1;\\n"
"X-Generator: Weblate 5.9\\n"

#. A remark for translators
#: src/main.c:12 src/other.c:3
#, c-format
msgid "%s was saved."
msgstr "%s est enregistré."

#: src/main.c:20
#, fuzzy, c-format
#| msgid "Old %s"
msgid "New %s"
msgstr "Ancien %s"

msgctxt "menu"
msgid ""
"A long message that is wrapped over "
"two lines."
msgstr ""

#~ msgid "Gone"
#~ msgstr "Parti"
"""
WEBLATE_XLIFF = """\
<?xml version="1.0" encoding="utf-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="app" source-language="en" target-language="fr" datatype="plaintext">
    <body>
      <trans-unit id="a" xml:space="preserve" approved="yes">
        <source>Open</source>
        <target state="translated">Ouvrir</target>
        <context-group purpose="location"><context context-type="sourcefile">a.c</context></context-group>
      </trans-unit>
      <trans-unit id="b" xml:space="preserve">
        <source>Close</source>
        <target state="needs-review-translation">Fermer</target>
      </trans-unit>
      <trans-unit id="c" xml:space="preserve">
        <source>The <x id="0"/> menu</source>
      </trans-unit>
    </body>
  </file>
</xliff>
"""


def toolkit_pairs(store: Any, data: str) -> Iterator[tuple[str, str]]:
    """Yield the finished pairs of a document by the Translate Toolkit."""
    for unit in store.parsestring(data.encode()).units:
        if unit.istranslated() and not (unit.isheader() or unit.isfuzzy() or unit.isobsolete()):
            yield str(unit.source), str(unit.target)


@pytest.mark.parametrize(
    ("ours", "toolkit", "data"),
    [
        (tmx.units, toolkit_tmx.tmxfile, OMEGAT),
        (tmx.units, toolkit_tmx.tmxfile, OPUS),
        (po.units, toolkit_po.pofile, WEBLATE),
        (xliff.units, toolkit_xliff.xlifffile, WEBLATE_XLIFF),
    ],
    ids=["omegat", "opus", "weblate-po", "weblate-xliff"],
)
def test_finished_pairs_are_those_of_the_translate_toolkit(ours: Any, toolkit: Any, data: str) -> None:
    found = [(unit.source, unit.target) for unit in ours([data.encode()], "f", ("en", "fr")) if not unit.skipped]
    assert found
    assert found == list(toolkit_pairs(toolkit, data))


@pytest.mark.parametrize(
    ("kind", "data", "before", "after"),
    [
        (
            "tmx",
            OMEGAT,
            "</ept>.</seg>\n      </tuv>\n",
            '</ept>.</seg>\n      </tuv>\n      <tuv xml:lang="fr"><seg>Press <bpt i="0" x="1">&lt;b1&gt;</bpt>OK'
            '<ept i="0">&lt;/b1&gt;</ept>.</seg></tuv>\n',
        ),
        ("tmx", OPUS, "here.</seg></tuv>\n", 'here.</seg></tuv>\n      <tuv xml:lang="fr"><seg>Only here.</seg></tuv>\n'),
        ("po", WEBLATE, 'two lines."\nmsgstr ""', 'two lines."\nmsgstr "A long message that is wrapped over two lines."'),
        (
            "xliff",
            WEBLATE_XLIFF,
            'The <x id="0"/> menu</source>\n',
            'The <x id="0"/> menu</source>\n        <target>The <x id="0"/> menu</target>\n',
        ),
    ],
)
def test_only_missing_targets_are_written(kind: str, data: str, before: str, after: str) -> None:
    found = translated(data, kind, Echo())
    assert found.data.decode() == data.replace(before, after)
    assert (found.translated, found.marked) == (1, 0)
