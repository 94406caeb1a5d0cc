"""The models Piper ships: their PyTorch sources, data, exports and golden values."""
