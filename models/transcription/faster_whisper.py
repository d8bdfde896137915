"""Whisper by CTranslate2."""
