"""Chat completions. Spec 4 (POST /chat/completions)."""
