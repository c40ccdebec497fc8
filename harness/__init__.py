"""Property-based and fuzz tests for Transformer Engine's activation checkpointing under FP8 delayed scaling."""
