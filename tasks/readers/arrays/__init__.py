"""Files that hold arrays: of NumPy, MATLAB, torch, DGL and PyG."""
