"""A CUDA device and an NVML that are not there: they let the CUDA build of PyTorch run on a machine without a GPU."""
