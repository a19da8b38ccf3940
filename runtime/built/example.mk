# Compiles the example beside this library: make, then ./example
CC ?= cc
CFLAGS ?= -O2 -std=c11 -Wall

example: example.c populus.h lib@NAME@.so
	$(CC) $(CFLAGS) -o $@ example.c -L. -l:lib@NAME@.so '-Wl,-rpath,$$ORIGIN'

clean:
	rm -f example

.PHONY: clean
