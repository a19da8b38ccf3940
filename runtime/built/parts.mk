# Links the parts of a library, which were made for @ARCHITECTURE@: make, or make CC=... with a compiler for it
CC = @ARCHITECTURE@-linux-gnu-gcc

lib@NAME@.so: @SOURCES@ exports cpu.h populus.h
	$(CC) @ARGUMENTS@

clean:
	rm -f lib@NAME@.so

.PHONY: clean
