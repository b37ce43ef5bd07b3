"""Arrays and variables: handles on nodes, with operators, indexing, conversion and printing."""
