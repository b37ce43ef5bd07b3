"""Matrix products: libraries, own microkernels, and the choice between them."""
