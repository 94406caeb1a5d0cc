"""Writes kjv.txt: the New Testament of the King James Bible as plain wrapped ASCII.

Needs Debian's packages bible-kjv (the reader) and bible-kjv-text (its compressed text):
    python models/text/make_kjv.py [path of the `bible` program]
"""

import pathlib
import subprocess
import sys
import textwrap

# The reader prints one verse a line, `Mat1:1 The book of ...`, with its own short book names.
BOOKS = {
    "Mat": "Matthew", "Mark": "Mark", "Luke": "Luke", "John": "John", "Acts": "Acts",
    "Rom": "Romans", "1Cor": "1 Corinthians", "2Cor": "2 Corinthians", "Gal": "Galatians",
    "Eph": "Ephesians", "Phi": "Philippians", "Col": "Colossians", "1Th": "1 Thessalonians",
    "2Th": "2 Thessalonians", "1Tim": "1 Timothy", "2Tim": "2 Timothy", "Titus": "Titus",
    "Phmn": "Philemon", "Heb": "Hebrews", "Jas": "James", "1Pet": "1 Peter", "2Pet": "2 Peter",
    "1Jn": "1 John", "2Jn": "2 John", "3Jn": "3 John", "Jude": "Jude", "Rev": "Revelation",
}


def read_chapters(program):
    """{(book, chapter number): [verse text, ...]} in the order of the text."""
    done = subprocess.run([program, "-f", "mat1:1-rev22:21"], capture_output=True, text=True,
                          encoding="ascii", check=True)
    chapters = {}
    for line in done.stdout.splitlines():
        reference, verse = line.split(" ", 1)
        head, _ = reference.split(":")
        book = next(b for b in BOOKS if head.startswith(b) and head[len(b):].isdigit())
        chapters.setdefault((book, int(head[len(book):])), []).append(verse.strip())
    return chapters


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "bible"
    parts = []
    for (book, number), verses in read_chapters(program).items():
        if number == 1:
            parts.append(BOOKS[book].upper())
        parts.append(f"{BOOKS[book]} {number}")
        parts.append(textwrap.fill(" ".join(verses), width=79, break_on_hyphens=False))
    out = pathlib.Path(__file__).with_name("kjv.txt")
    out.write_bytes(("\n\n".join(parts) + "\n").encode("ascii"))
    print(f"{out.name}: {out.stat().st_size} bytes, {len(parts)} paragraphs")


if __name__ == "__main__":
    main()
