def check(number, answer, is_right, hint):
    """Say in a sentence whether an answer is right. One that is still open is no error."""
    try:
        value = answer()
        parts = value if isinstance(value, list | tuple) else [value]
        is_open = any(part is None for part in parts)
        verdict = "right." if not is_open and is_right(value) else f"not yet. {hint}"
    except Exception as error:
        verdict = f"not yet. Your answer raised {error!r}. {hint}"
    print(f"Exercise {number}: {verdict}")
