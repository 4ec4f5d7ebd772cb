"""What stands for tensors, edges and numbers while the code of a layer runs to be captured."""
