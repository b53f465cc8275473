"""What several parts of the package share: small tools without Keras or a backend."""
