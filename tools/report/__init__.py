"""A program's predicted cost as data (`record`), as a page (`page`), beside another's (`difference`), and on other machines (`what_if`)."""
