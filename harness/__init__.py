"""Property-based and fuzz tests for Transformer Engine's activation checkpointing in FP8."""
