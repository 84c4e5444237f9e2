"""Does docs_test.py find what it should? Each rule with a page that breaks it and one that does not."""

import pathlib
import tempfile
import unittest

import docs_test


class LayoutTest(unittest.TestCase):
    def problems(self, text: str) -> list[str]:
        return docs_test.layout_problems("a.md", docs_test.read_page(text))

    def test_lines_that_are_too_long(self):
        self.assertEqual(self.problems("x" * 120), [])
        self.assertEqual(self.problems("x" * 121), ["a.md:1: 121 columns, over 120"])
        self.assertEqual(self.problems("é" * 120), [])

    def test_rows_of_tables_may_be_long(self):
        self.assertEqual(self.problems("|" + "x" * 121 + "|"), [])

    def test_code_may_be_long(self):
        long = "x" * 121
        self.assertEqual(self.problems(f"```sh\n{long}\n```"), [])
        self.assertEqual(self.problems(f"Text\n\n    {long}\n\n    {long}"), [])
        self.assertEqual(len(self.problems(f"```sh\nx\n```\n{long}")), 1)
        self.assertEqual(len(self.problems(f"Text\n    {long}")), 1)  # goes on with the paragraph

    def test_a_fence_ends_with_one_of_its_kind(self):
        long = "x" * 121
        self.assertEqual(self.problems(f"````\n```\n{long}\n````"), [])
        self.assertEqual(len(self.problems(f"````\n```\n````\n{long}")), 1)

    def test_long_addresses_make_long_lines(self):
        self.assertEqual(self.problems("See <https://example.org/" + "x" * 121 + ">."), [])
        self.assertEqual(len(self.problems("See <https://example.org/> and " + "more " * 20)), 1)

    def test_headings_stand_between_blank_lines(self):
        self.assertEqual(self.problems("# A\n\nText\n\n## B\n\nText"), [])
        self.assertEqual(self.problems("# A\n\nText\n## B\n\nText"),
                         ["a.md:4: a blank line is missing before the heading"])
        self.assertEqual(self.problems("# A\nText"), ["a.md:1: a blank line is missing after the heading"])

    def test_comments_of_shells_are_no_headings(self):
        self.assertEqual(self.problems("Text\n\n    # a comment\n    ls\n"), [])
        self.assertEqual(self.problems("```sh\nls\n# a comment\nls\n```"), [])


class LinkTest(unittest.TestCase):
    def problems(self, **texts: str) -> list[str]:
        """Of files in a folder of their own; `docs__a` is docs/a.md."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for key, text in texts.items():
                path = root / (key.replace("__", "/") + ".md")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            pages = docs_test.read_pages(root)
            return docs_test.link_problems(root, pages) + docs_test.reach_problems(root, pages)

    def test_links_lead_to_files(self):
        self.assertEqual(self.problems(README="[a](docs/a.md)", docs__a="[back](../README.md)"), [])
        self.assertEqual(self.problems(README="[a](docs/b.md)"), ["README.md:1: docs/b.md: there is no such file"])
        self.assertEqual(len(self.problems(README="![a](picture.svg)")), 1)

    def test_links_lead_to_headings(self):
        page = "# What `it` is\n\n## Again, and again\n\n## Again, and again\n\n## A [link](a.md)\n"
        for anchor in ("what-it-is", "again-and-again", "again-and-again-1", "a-link"):
            self.assertEqual(self.problems(README=f"[a](a.md#{anchor})", a=page), [], anchor)
        self.assertEqual(self.problems(README="[a](a.md#again-and-again-2)", a="# Again and again"),
                         ["README.md:1: a.md#again-and-again-2: a.md has no heading with that anchor"])
        self.assertEqual(self.problems(README="# Here\n\n[a](#here)"), [])
        self.assertEqual(len(self.problems(README="# Here\n\n[a](#there)")), 1)

    def test_links_do_not_leave_the_repository(self):
        self.assertEqual(len(self.problems(README="[a](../../../etc/passwd)")), 1)
        self.assertEqual(self.problems(README="[a](https://example.org/b.md) <mailto:a@example.org>"), [])

    def test_code_has_no_links(self):
        self.assertEqual(self.problems(README="`[a](b.md)` and\n\n    [a](b.md)\n"), [])

    def test_every_page_is_reached(self):
        self.assertEqual(self.problems(README="[a](a.md)", a="[b](docs/b.md)", docs__b=""), [])
        self.assertEqual(self.problems(README="", ARCHITECTURE="[a](a.md)", a=""), [])
        self.assertEqual(self.problems(README="", a="[b](b.md)", b="[a](a.md)"),
                         ["a.md: no link leads here from README.md or ARCHITECTURE.md",
                          "b.md: no link leads here from README.md or ARCHITECTURE.md"])

    def test_a_folder_is_its_readme(self):
        self.assertEqual(self.problems(README="[docs](docs)", docs__README="[a](a.md)", docs__a=""), [])

    def test_what_is_built_has_no_pages(self):
        self.assertEqual(self.problems(README="", build__a="", **{".github__a": "[b](b.md)"}), [])


if __name__ == "__main__":
    unittest.main()
