"""Does site_test.py find what it should?"""

import unittest

import site_test

NAVIGATION = """
root: README
subtrees:
  - caption: Some
    entries:
      - file: docs/a
        entries:
          - glob: docs/adr/0*
"""
PAGES = ["README", "docs/a", "docs/adr/0001-x", "docs/adr/0002-y"]


class NavigationTest(unittest.TestCase):
    def test_all_pages_once(self):
        self.assertEqual(site_test.navigation_problems(NAVIGATION, PAGES), [])

    def test_a_page_that_is_not_named(self):
        self.assertEqual(
            site_test.navigation_problems(NAVIGATION, [*PAGES, "docs/b"]), ["docs/b: the navigation names it 0 times"])

    def test_a_page_that_is_named_twice(self):
        self.assertEqual(
            site_test.navigation_problems(NAVIGATION + "      - file: docs/a\n", PAGES),
            ["docs/a: the navigation names it 2 times"])

    def test_a_name_that_is_no_page(self):
        self.assertEqual(
            site_test.navigation_problems(NAVIGATION, PAGES[:2]), ["docs/adr/0*: there is no such page"])


class ReferenceTest(unittest.TestCase):
    MODULES = {
        "__init__": '__all__ = ["f"]',
        "m": "from crossmesh._x import g as g\nfrom crossmesh._x import other\ndef f(): pass\ndef _h(): pass",
    }

    def test_a_whole_module(self):
        self.assertEqual(site_test.reference_problems(self.MODULES, ".. automodule:: crossmesh.m\n"), [])

    def test_each_name(self):
        text = ".. autofunction:: crossmesh.f\n.. autofunction:: g\n"
        self.assertEqual(site_test.reference_problems(self.MODULES, text), [])

    def test_a_name_that_is_missing(self):
        text = ".. automodule:: crossmesh.m\n   :no-members:\n\n.. autofunction:: f\n"
        self.assertEqual(
            site_test.reference_problems(self.MODULES, text), ["crossmesh.m: no page of the reference has g"])


if __name__ == "__main__":
    unittest.main()
