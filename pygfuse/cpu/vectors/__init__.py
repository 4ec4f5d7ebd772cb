"""The values of a program as LLVM vectors: their types, arithmetic, memory and layouts."""
