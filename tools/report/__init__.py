"""A program's predicted cost: as data (`record`), as a page (`page`), compared (`difference`), on other machines (`what_if`)."""
