"""The bin: format, compiler, session."""
