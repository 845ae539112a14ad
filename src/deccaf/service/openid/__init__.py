"""Signing in with an account of the house: OpenID Connect, beside keys.

`settings` is the file that says which provider, and who may do what; `provider` speaks the protocol;
`identities` lets in whoever the provider vouches for. The pages around it are in `web.pages.openid`.
"""
