"""Speech. Spec 4 (POST /audio/speech)."""
