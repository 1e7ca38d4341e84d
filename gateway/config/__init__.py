"""The broker's options: how one is declared, all of them, where their values come from."""
