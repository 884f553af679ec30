# SPDX-License-Identifier: Apache-2.0
"""Seeded texts: every category of Unicode 14, and the shapes that tokenizers get wrong."""

import random
import sys
import unicodedata

assert unicodedata.unidata_version.startswith("14."), "the generator needs Unicode 14 (Python 3.11)"

SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u2028\u2029\u202f\u205f\u3000"
NO_SPACES = "\u180e\u200b\u2060\ufeff\u200d\u200c"
WORDS = (
    "the of and model replica queue water turbine gate head valve Penstock I'm you're we've they'll he'd "
    "don't it's IT'S We'Ve l'eau d'or ' '' 's 't 'll naïve façade Straße Ελλάδα Москва 東京 서울 हिन्दी ภาษาไทย "
    "العربية עברית int main(void) { return 0; } foo_bar CamelCase https://example.org/?a=1&b=2 user@example.org "
    "<table> <td> </td> <b>bold</b> <h1> <code> ▁ ▁▁ ▁x"
).split(" ")
EMOJI = [
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001f1e8\U0001f1ed",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "1\ufe0f\u20e3", "\U0001f600",
    "\U0001f468\U0001f3fb\u200d\U0001f91d\u200d\U0001f468\U0001f3ff", "\u26f9\ufe0f\u200d\u2640\ufe0f",
]


def code_points_by_category():
    categories = {}
    for cp in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(cp))
        if category not in ("Cs", "Cn"):
            categories.setdefault(category, []).append(chr(cp))
    return categories


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.categories = code_points_by_category()
        self.makers = [
            self.any_category, self.one_category, self.words, self.words, self.spaces, self.digits, self.emoji,
            self.runs, self.code, self.mixed,
        ]

    def text(self):
        return self.random.choice(self.makers)()

    def any_category(self):
        names = sorted(self.categories)
        return "".join(self.random.choice(self.categories[self.random.choice(names)])
                       for _ in range(self.random.randint(1, 40)))

    def one_category(self):
        chars = self.categories[self.random.choice(sorted(self.categories))]
        joint = self.random.choice(["", "", " ", "a", "1", "'"])
        return joint.join(self.random.choice(chars) for _ in range(self.random.randint(1, 24)))

    def words(self):
        joint = self.random.choice([" ", " ", "  ", "\n", " \n", ", "])
        return joint.join(self.random.choice(WORDS) for _ in range(self.random.randint(1, 20)))

    def spaces(self):
        out = []
        for _ in range(self.random.randint(1, 8)):
            out.append(self.random.choice(SPACES + NO_SPACES) * self.random.choice([1, 1, 2, 3, 7, 31, 32, 33, 70]))
            if self.random.random() < 0.5:
                out.append(self.random.choice(["a", "1", ".", "é", "'s", "中"]))
        return "".join(out)

    def digits(self):
        numbers = self.categories["Nd"] + self.categories["Nl"] + self.categories["No"]
        return "".join(self.random.choice([str(self.random.randint(0, 10**9)), self.random.choice(numbers), " ", "  ",
                                           ",", ".", "-", "x", " 0x1F", "1e-5"])
                       for _ in range(self.random.randint(1, 20)))

    def emoji(self):
        return "".join(self.random.choice(EMOJI + [" ", "a", "!"]) for _ in range(self.random.randint(1, 12)))

    def runs(self):
        return "".join(self.random.choice("aAe.=-_*#/ \n\t1é中'")
                       * self.random.choice([1, 2, 3, 5, 16, 64, 200]) for _ in range(self.random.randint(1, 6)))

    def code(self):
        lines = []
        for _ in range(self.random.randint(1, 8)):
            lines.append(" " * (4 * self.random.randint(0, 10)) + self.random.choice(
                ["if (x != y) {", "}", "return f(x)[i]->y;", "# comment", "def f(self, *args):", "<div class=\"a\">",
                 "\tfor i in range(10):", "x += 1;", "'quoted' \"text\"", "a|b||c &&d"]))
        return self.random.choice(["\n", "\r\n", "\n\n"]).join(lines)

    def mixed(self):
        return "".join(self.random.choice(self.makers[:-1])()[: self.random.randint(1, 30)]
                       for _ in range(self.random.randint(2, 6)))
