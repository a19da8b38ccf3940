"""The ops that Graphcore's package popxl_addons writes in C++, as ops of ours; the rest of that package runs as it is."""
