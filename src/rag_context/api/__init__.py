"""The promises on the wire: request, response and error models. camelCase outside, snake_case inside."""
