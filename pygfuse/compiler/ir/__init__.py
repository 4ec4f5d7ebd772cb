"""The intermediate representation: values, the operators between them, and which number of a value stands where."""
