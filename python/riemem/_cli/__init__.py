"""The commands: parsing, one call of the library, printing. Nothing else happens here."""
