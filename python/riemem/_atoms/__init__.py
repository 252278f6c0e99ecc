"""What :mod:`riemem.clustering` is made of: state, questions, files, links, ranking, storage."""
