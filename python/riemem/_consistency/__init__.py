"""Claims, the rules that read them from text, and the sheaf that tells whether they agree."""
