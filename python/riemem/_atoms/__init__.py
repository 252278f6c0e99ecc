"""What :mod:`riemem.clustering` is made of: state, files, links, ranking, compressed forms."""
