"""PyTorch's CUDA caching allocator as a pure state machine: the simulated GPU."""
