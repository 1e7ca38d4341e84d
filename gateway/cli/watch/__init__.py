"""Commands that look: at one message (trace, search), at the broker (top), at the machine (doctor)."""
